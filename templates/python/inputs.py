class _Port(_typing.NamedTuple):
    """An input or an output; a shape has numbers, and extents by their names."""

    name: str
    dtype: str
    shape: tuple = ()
    default: float | None = None
    converts: bool = False  # it takes arrays of other numbers, too
    ranges: tuple = ()


class _Range(_typing.NamedTuple):
    """Elements of an input that are indices into an axis of so many elements; in a box of it, or all of them."""

    size: int | str
    wraps: bool = False
    ignored: int | None = None
    box: tuple = ()


class _Entry(_typing.NamedTuple):
    """A function of the model: ``solves`` says which axes give or check an extent, ``bounds`` which must be how large."""

    name: str
    inputs: tuple = ()
    outputs: tuple = ()
    run: tuple = ()
    workspace: object = None
    solves: tuple = ()
    bounds: tuple = ()
    is_scalar: bool = False  # the only output is returned as a Python number
    gives_numbers: bool = False  # outputs without axes are returned as Python numbers
    is_named: bool = False  # the outputs are returned in a dict
    refusals: tuple = ()  # what is wrong where the kernel gives a number, from 1 on


_MAX_BYTES = 1 << 46


class _Input:
    """One input as it was given: its shape, and its numbers or a list that is still to be converted."""

    def __init__(self, dtype, shape, numbers=None, values=None):
        self.dtype, self.shape, self.numbers, self.values = dtype, shape, numbers, values


class _Call:
    """A call of an entry: what is known of its inputs and dims."""

    def __init__(self, model, entry, function):
        self.model, self.entry, self.function = model, entry, function
        self.inputs, self.dims, self.dim_from = [], {}, {}
        self.has_batch = self.lacks_batch = False

    @property
    def drops_batch(self):
        """Whether no input had the axis of the batch, so that outputs have none either."""
        return self.lacks_batch and not self.has_batch

    def extent(self, extent):
        """Return an extent of a shape as a number."""
        return extent if isinstance(extent, int) else self.extents()[extent]

    def extents(self):
        """Return all extents by name; dims that are not known yet are 0."""
        return _extents(*(self.dims.get(name, 0) for name in _DIMS))

    def numbers(self):
        """Return the dims, those that no input has as 1."""
        return [self.dims.get(name, 1) for name in _DIMS]


def _refuse(call, port, got, error=TypeError, mend=""):
    expected = _words(_name(port.dtype), port.shape)
    raise error(f"{call.function}: {port.name}: expected {expected}, got {got}{mend}")


def _bind(call, args, named, options=()):
    """Return the arguments in the order of the ports, and the keywords among ``options``."""
    entry, function = call.entry, call.function
    if len(args) > len(entry.inputs):
        raise TypeError(f"{function}() takes {len(entry.inputs)} positional arguments, got {len(args)}")
    values = dict(zip((port.name for port in entry.inputs), args))
    chosen = {}
    for name, value in named.items():
        if name in options:
            chosen[name] = value
        elif any(port.name == name for port in entry.inputs) and name not in values:
            values[name] = value
        else:
            what = "more than one" if name in values else "an unexpected keyword"
            raise TypeError(f"{function}() got {what} argument '{name}'")
    for port in entry.inputs:
        if port.name not in values and port.default is None:
            raise TypeError(f"{function}() is missing argument '{port.name}'")
    return [values.get(port.name, port.default) for port in entry.inputs], chosen


def _see_inputs(call, values):
    """Read the arguments; afterwards the dims are known."""
    for port, value in zip(call.entry.inputs, values):
        call.inputs.append(_see_input(call, port, value))
        _match_shape(call, port, call.inputs[-1])
    for port, axis, extent, name in call.entry.solves:
        _solve(call, call.entry.inputs[port], call.inputs[port].shape, axis, extent, name)
    for extent, least in call.entry.bounds:
        value = call.extent(extent)
        if value < least:
            raise ValueError(f"{call.function}: expected {extent} of at least {least}, got {value}")
        if value > _MAX_BYTES:
            raise MemoryError


def _see_input(call, port, value):
    """Return an input as it was given: an array or a buffer, a list, or a number."""
    if port.default is not None:
        return _see_number(call, port, value)
    view = _view(value)
    if view is not None:
        return _see_view(call, port, value, view)
    if isinstance(value, (list, tuple)):
        return _see_list(call, port, value)
    if port.converts and hasattr(value, "__array__"):
        view = _view(value.__array__())
        if view is not None:
            return _see_view(call, port, value, view)
    return _see_number(call, port, value)


def _see_view(call, port, value, view):
    """Return the numbers of an array or a buffer."""
    is_own = isinstance(view, Array)
    dtype = view._dtype if is_own else _buffer_dtype(view)
    got = _words(view.dtype, view.shape) if is_own else _buffer_words(view)
    if dtype != port.dtype and not _is_convertible(port, dtype):
        _refuse(call, port, got, mend=_mend_buffer(port, value, None if is_own else view, dtype))
    if is_own:
        return _Input(dtype, view.shape, _dense(view))
    if view.c_contiguous and view.ndim > 0 and view.format in _DTYPES[dtype][3] + _DTYPES[dtype][4] and view.nbytes:
        return _Input(dtype, view.shape, view.cast("B"))
    return _Input(dtype, view.shape, view.tobytes())


def _is_convertible(port, dtype):
    """Whether an array of another kind of number is converted: where the port says so, and to integers only integers."""
    kind = _kind(port.dtype)
    return port.converts and dtype is not None and (kind == "f" or (kind == "i" and _kind(dtype) != "f"))


def _mend_buffer(port, value, view, dtype):
    """Return what makes the right numbers of a buffer with others, unless some would be cut off."""
    is_float, is_integer = _kind(port.dtype) == "f", dtype is not None and _kind(dtype) != "f"
    is_swapped = view is not None and view.format[0] in "<>!" and len(view.format) == 2
    if not is_integer and not (is_float and (dtype is not None or is_swapped)):
        return ""
    if hasattr(value, "astype"):
        return f"; pass {port.name}.astype('{_name(port.dtype)}')"
    if _kind(port.dtype) != "b" and hasattr(value, "tolist"):
        return f"; pass {port.name}.tolist(), whose numbers are converted"
    return ""


def _mend_object(port, value):
    """Return what makes an array or a list of an object that is neither."""
    if hasattr(value, "to_numpy"):
        return f"; pass {port.name}.to_numpy().astype('{_name(port.dtype)}')"
    if hasattr(value, "__array__"):
        return f"; pass numpy.asarray({port.name}, '{_name(port.dtype)}')"
    if hasattr(type(value), "__getitem__") and not isinstance(value, (str, dict)):
        return f"; pass list({port.name})"
    return ""


def _see_list(call, port, values):
    """Return nested lists, whose shape is that of their first items."""
    shape, item = [], values
    while isinstance(item, (list, tuple)):
        if len(shape) == 64:
            _refuse(call, port, "lists nested too deep", ValueError)
        shape.append(len(item))
        item = item[0] if item else None
    view = None if isinstance(item, bytes) else _view(item)
    if view is not None and view.ndim > 0:
        _refuse(call, port, "a list of arrays", mend=f"; pass numpy.stack({port.name})")
    return _Input(port.dtype, tuple(shape), values=values)


def _see_number(call, port, value):
    if port.shape not in ((), ("batch",)):
        _refuse(call, port, type(value).__name__, mend=_mend_object(port, value))
    return _Input(port.dtype, (), _number_from(call.function, port.name, port.dtype, value))


def _match_shape(call, port, given):
    """Hold an input's shape against the port's, and learn the named dims from it.

    A missing batch axis means a batch of 1; expressions of dims are left to _solve.
    """
    shape, wanted = given.shape, port.shape
    lacks = int(wanted[:1] == ("batch",) and len(shape) == len(wanted) - 1)
    pairs = [*zip(wanted[lacks:], shape)]
    if len(shape) + lacks != len(wanted) or any(isinstance(n, int) and n != extent for n, extent in pairs):
        kind = "list" if given.values is not None else _name(given.dtype)
        _refuse(call, port, _words(kind, shape), ValueError)
    if lacks:
        call.lacks_batch = True
        _set_dim(call, port, "batch", 1)
    elif wanted[:1] == ("batch",):
        call.has_batch = True
    for name, extent in pairs:
        if name in _NAMED:
            _set_dim(call, port, name, extent)


def _set_dim(call, port, name, value):
    key = _NAMED[name]
    if key not in call.dims:
        call.dims[key], call.dim_from[key] = value, port.name
    elif call.dims[key] != value:
        other = f"{name} is {value} here, but {call.dims[key]} in {call.dim_from[key]}"
        raise ValueError(f"{call.function}: {port.name}: {other}")


def _solve(call, port, shape, axis, extent, name):
    """Learn the dim that makes an extent, which is linear in it, the size of an axis; then hold them together."""
    size = shape[axis - (len(port.shape) - len(shape))]

    def refuse(expected):
        raise ValueError(f"{call.function}: {port.name}: expected an extent of {extent}{expected}, got {size}")

    if name is not None:
        key = _NAMED[name]
        base = call.extent(extent)
        call.dims[key] = 1
        step = call.extent(extent) - base
        del call.dims[key]
        if step == 0 and size == base:
            refuse(f" that tells {name}")
        if step == 0 or (size - base) % step or (size - base) // step < 0:
            refuse("")
        _set_dim(call, port, name, (size - base) // step)
    if call.extent(extent) != size:
        refuse(f" = {call.extent(extent)}")


def _fill(call, port, values, shape):
    """Return the bytes of nested lists."""
    if not shape:
        return _number_from(call.function, port.name, port.dtype, values)
    if not isinstance(values, (list, tuple)) or len(values) != shape[0]:
        _refuse(call, port, "lists of unequal length", ValueError)
    if len(shape) == 1 and port.dtype == "f64" and all(type(value) is float for value in values):
        return _struct.pack(f"<{len(values)}d", *values)
    return b"".join(_fill(call, port, item, shape[1:]) for item in values)


def _convert(call, port, given):
    """Return the bytes of an array of other numbers; what would become infinite, or does not fit, is refused."""
    converted = []
    for at in range(0, len(given.numbers), _size(given.dtype)):
        number = _get(given.dtype, given.numbers, at)
        packed = _pack(port.dtype, number)
        if _kind(port.dtype) != "f":
            fits = _integer_fits(port.dtype, int(number))
        else:
            fits = _math.isinf(number) or not _math.isinf(_get(port.dtype, packed, 0))
        if not fits:
            _refuse_number(call.function, port.name, port.dtype, number)
        converted.append(packed)
    return b"".join(converted)


def _place_inputs(call, taker):
    """Return the memory of each input, dense and of the port's numbers; they were given for the entry ``taker``."""
    memory = []
    for port, given in zip(call.entry.inputs, call.inputs):
        numbers = given.numbers
        if given.values is not None:
            numbers = _fill(call, port, given.values, given.shape)
        elif given.dtype != port.dtype:
            numbers = _convert(call, port, given)
        memory.append(memoryview(bytes(numbers) if port.ranges else numbers))
    for port, given, numbers in zip(taker.inputs, call.inputs, memory):
        for limits in port.ranges:
            _check_indices(call, port, given, numbers, limits)
    return memory


def _check_indices(call, port, given, numbers, limits):
    """Hold the elements of an input that are indices against what they may be."""
    shape = [call.extent(extent) for extent in port.shape]
    is_unsigned = _kind(port.dtype) == "u"
    size, wraps = call.extent(limits.size), limits.wraps and not is_unsigned
    low = -size if wraps else 0
    ignored = None if is_unsigned and (limits.ignored or 0) < 0 else limits.ignored
    for place in _box(call, shape, limits.box):
        value = _get(port.dtype, numbers, place * _size(port.dtype))
        if not (low <= value < size or low - 1 < value < size or value == ignored):
            expected = f"values from {low} to {size - 1}" if size else "no values, since there is nothing to choose from"
            other = "" if ignored is None else f" or {ignored}"
            name = port.name + _place_text(place, shape, len(shape) - len(given.shape))
            raise ValueError(f"{call.function}: {name}: expected {expected}{other}, got {value}")


def _box(call, shape, box):
    """Return the places of the elements in a box of an input, in order."""
    if not any(box):
        return range(_count(shape))
    places, stride = [range(1)], _count(shape)
    for extent, span in zip(shape, (*box, *[None] * len(shape))):
        stride //= extent or 1
        start, count, step = (0, extent, 1) if span is None else (call.extent(span[0]), call.extent(span[1]), span[2])
        places.append(range(start * stride, (start + count * step) * stride, step * stride or 1))
    return map(sum, _itertools.product(*places))


def _place_text(place, shape, lacks):
    """Return the place of an element as an index of the caller's, who may have left out the axis of the batch."""
    at = []
    for extent in reversed(shape):
        place, index = divmod(place, extent)
        at.insert(0, str(index))
    return f"[{', '.join(at[lacks:])}]" if at[lacks:] else ""
