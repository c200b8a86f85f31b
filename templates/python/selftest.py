def _golden_number(dtype, z):
    """Return a number that every machine makes alike, and that is exact in its dtype."""
    if _kind(dtype) == "f":
        bits = {"f16": 11, "bf16": 8}.get(dtype, 24)
        return _pack(dtype, (z >> 64 - bits) / (1 << bits - 1) - 1.0)
    return bytes([z & 1]) if dtype == "bool" else _pack(dtype, z % 8)


def _golden_input(call, i):
    """Return input number i of a call whose answers are known."""
    port = call.entry.inputs[i]
    shape = [call.extent(extent) for extent in port.shape]
    states = [_split_mix((i << 32) + (n + 1) * _GAMMA & 0xFFFFFFFFFFFFFFFF) for n in range(_count(shape))]
    numbers = [_golden_number(port.dtype, z) for z in states]
    for limits in port.ranges:
        bits = 8 if _kind(port.dtype) == "f" else min(31, 8 * _size(port.dtype) - (_kind(port.dtype) == "i"))
        count = min(call.extent(limits.size), 1 << bits)
        for place in _box(call, shape, limits.box):
            numbers[place] = _pack(port.dtype, states[place] % count)
    return _array(port.dtype, shape, memoryview(bytearray(b"".join(numbers))))


def _golden_error(entry, port, output, answers):
    """Hold an output against its answers; return the largest error as a share of the bound."""
    bound, *expected = answers
    size = output.size if isinstance(output, Array) else 1
    places = [k * size // min(size, len(expected)) for k in range(min(size, len(expected)))]
    worst = 0.0
    for place, answer in zip(places, expected):
        at = place * _size(port.dtype)
        found = _get(port.dtype, output._memory, at) if isinstance(output, Array) else output
        error = 0.0 if found == answer else abs(found - answer)
        if not error <= bound:
            text = f"element {place}: expected {answer:.9g} within {bound:.2g}, got {found:.9g}"
            raise RuntimeError(f"selftest: {port.name} of {entry.name} on python: {text}")
        worst = max(worst, error / bound if bound > 0.0 else 0.0)
    return worst


def selftest():
    """Replay the golden vectors; the largest error as a share of its bound. Raises RuntimeError where one is missed."""
    worst = 0.0
    for name, dims, answers in _GOLDEN:
        entry = _ENTRIES[name]
        call = _Call(None, entry, name)
        call.dims = dict(zip(_DIMS, dims))
        ports = [i for i, port in enumerate(entry.inputs) if port.default is None]
        results = _call_entry(Model(), name, [_golden_input(call, i) for i in ports], {})
        outputs = [*results.values()] if entry.is_named else results if len(entry.outputs) > 1 else [results]
        for port, output, expected in zip(entry.outputs, outputs, answers):
            worst = max(worst, _golden_error(entry, port, output, expected))
    return {"python": worst} if _GOLDEN else {}
