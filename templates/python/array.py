# By the names of dtypes here: their names for users, their kind (floating point, signed, unsigned or bool), their bytes,
# the letter of memoryview and struct, other letters of buffers of the same numbers, and their name in safetensors.
_DTYPES = {
    "f16": ("float16", "f", 2, "e", "", "F16"),
    "bf16": ("bfloat16", "f", 2, "", "", "BF16"),
    "f32": ("float32", "f", 4, "f", "", "F32"),
    "f64": ("float64", "f", 8, "d", "", "F64"),
    "i8": ("int8", "i", 1, "b", "", "I8"),
    "i16": ("int16", "i", 2, "h", "", "I16"),
    "i32": ("int32", "i", 4, "i", "l", "I32"),
    "i64": ("int64", "i", 8, "q", "ln", "I64"),
    "u8": ("uint8", "u", 1, "B", "", "U8"),
    "u16": ("uint16", "u", 2, "H", "", "U16"),
    "u32": ("uint32", "u", 4, "I", "L", "U32"),
    "u64": ("uint64", "u", 8, "Q", "LN", "U64"),
    "bool": ("bool", "b", 1, "?", "", "BOOL"),
}


def _name(dtype):
    return _DTYPES[dtype][0]


def _kind(dtype):
    return _DTYPES[dtype][1]


def _size(dtype):
    return _DTYPES[dtype][2]


def _words(name, shape):
    """Return a type for a message: float32[batch, 784]."""
    return f"{name}[{', '.join(map(str, shape))}]" if shape else name


def _refuse_type(where, name, expected, got):
    raise TypeError(f"{where}: {name}: expected {expected}, got {type(got).__name__}")


def _refuse_number(where, name, dtype, number):
    raise ValueError(f"{where}: {name}: expected {_name(dtype)}, got {number}")


def _get(dtype, memory, at):
    """Return the number that lies at a byte of memory."""
    if dtype == "bf16":
        return _struct.unpack("<f", b"\0\0" + bytes(memory[at : at + 2]))[0]
    return _struct.unpack_from("<" + _DTYPES[dtype][3], memory, at)[0]


def _pack(dtype, number):
    """Return the bytes of a number: of a float those of the nearest one, of an integer its low bits."""
    if _kind(dtype) != "f":
        return (int(number) & (1 << 8 * _size(dtype)) - 1).to_bytes(_size(dtype), "little")
    if dtype == "bf16":
        bits = int.from_bytes(_pack("f32", number), "little")
        bits = (bits + 0x7FFF + (bits >> 16 & 1) if number == number else bits | 0x400000) >> 16
        return bits.to_bytes(2, "little")
    try:
        return _struct.pack("<" + _DTYPES[dtype][3], number)
    except OverflowError:
        return _struct.pack("<" + _DTYPES[dtype][3], _math.copysign(_math.inf, number))


def _float_from(where, name, dtype, number):
    """Return the bytes of a Python number as a float."""
    kind = type(number)
    if not (hasattr(kind, "__float__") or hasattr(kind, "__index__")):
        _refuse_type(where, name, _name(dtype), number)
    try:
        value = float(number)
    except TypeError:
        _refuse_type(where, name, _name(dtype), number)
    except OverflowError:
        raise ValueError(f"{where}: {name}: integer too large for {_name(dtype)}") from None
    packed = _pack(dtype, value)
    if not _math.isinf(value) and _math.isinf(_get(dtype, packed, 0)):
        _refuse_number(where, name, dtype, number)
    return packed


def _integer_fits(dtype, value):
    bits = 8 * _size(dtype)
    return 0 <= value < 1 << bits if _kind(dtype) == "u" else -(1 << bits - 1) <= value < 1 << bits - 1


def _number_from(where, name, dtype, number):
    """Return the bytes of a Python number as one of a dtype, which must hold it."""
    if _kind(dtype) == "f":
        return _float_from(where, name, dtype, number)
    if _kind(dtype) == "b":
        if type(number) is not bool:
            _refuse_type(where, name, _name(dtype), number)
        return b"\1" if number else b"\0"
    if not hasattr(type(number), "__index__"):
        _refuse_type(where, name, _name(dtype), number)
    value = _operator.index(number)
    if not _integer_fits(dtype, value):
        _refuse_number(where, name, dtype, value)
    return _pack(dtype, value)


def _dense_strides(dtype, shape):
    """Return the bytes from one element to the next along each axis where there is nothing between them."""
    strides, stride = [], _size(dtype)
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride *= extent
    return tuple(strides)


def _count(shape):
    return _math.prod(shape)


def _gather(memory, at, size, shape, strides):
    """Return the bytes of a strided array, dense."""
    if not shape:
        return bytes(memory[at : at + size])
    if len(shape) == 1 and strides[0] == size:
        return bytes(memory[at : at + shape[0] * size])
    return b"".join(_gather(memory, at + i * strides[0], size, shape[1:], strides[1:]) for i in range(shape[0]))


def _scatter(memory, at, size, shape, strides, data):
    """Write dense bytes to a strided array."""
    if not shape:
        memory[at : at + size] = data
    elif len(shape) == 1 and strides[0] == size:
        memory[at : at + shape[0] * size] = data
    else:
        row = len(data) // shape[0] if shape[0] else 0
        for i in range(shape[0]):
            part = data[i * row : (i + 1) * row]
            _scatter(memory, at + i * strides[0], size, shape[1:], strides[1:], part)


def _shortest(dtype, value):
    """Return the number with the fewest digits that a dtype rounds to the same bits."""
    if dtype == "f64" or value - value != 0.0:
        return value
    packed = _pack(dtype, value)
    for digits in range(1, 10):
        rounded = float(f"{value:.{digits}g}")
        if _pack(dtype, rounded) == packed:
            return rounded
    return value


def _buffer_dtype(view):
    """Return the dtype of a buffer's numbers, in the machine's order of bytes; None where it has none."""
    letter = view.format[1:] if view.format[0] in "<=@" else view.format
    for dtype, (_, _, size, own, others, _) in _DTYPES.items():
        if len(letter) == 1 and letter in own + others and view.itemsize == size:
            return dtype
    return None


def _buffer_words(view):
    """Return what a buffer holds, for a message: float64[10, 784]."""
    order = "big-endian " if view.format[0] in ">!" else ""
    letter = view.format[1:] if view.format[0] in "<>=@!" else view.format
    kinds = {**dict.fromkeys("efd", "float"), **dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint")}
    if letter == "?":
        return _words(f"{order}bool", view.shape)
    if letter not in kinds:
        return _words(f"buffer format '{view.format[:40]}'", view.shape)
    return _words(f"{order}{kinds[letter]}{8 * view.itemsize}", view.shape)


def _view(value):
    """Return an array or a buffer as an Array of the same memory or a memoryview; None for anything else."""
    if isinstance(value, Array):
        return value
    try:
        return memoryview(value)
    except TypeError:
        return _interface(value)


def _interface(value):
    """Return what says by __array_interface__ in which buffer its numbers are, such as an Array of another module."""
    interface = None if isinstance(value, type) else getattr(value, "__array_interface__", None)
    data = interface.get("data") if isinstance(interface, dict) else None
    if data is None or isinstance(data, tuple):
        return None
    order, kind, size = interface["typestr"][0], interface["typestr"][1], int(interface["typestr"][2:])
    found = [dtype for dtype in _DTYPES if dtype != "bf16" and (_kind(dtype), _size(dtype)) == (kind, size)]
    if not found or (order == ">" and size > 1):
        return None
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or _dense_strides(found[0], shape)
    return _array(found[0], shape, memoryview(data).cast("B"), interface.get("offset", 0), strides)


class Array:
    """Numbers in memory: NumPy sees them without a copy, and from Python 3.12 on any consumer of buffers."""

    __slots__ = ("__weakref__", "_at", "_dtype", "_memory", "_shape", "_strides")

    def __new__(cls, *args, **named):
        raise TypeError(f"cannot create '{cls.__module__}.{cls.__qualname__}' instances")

    def __init_subclass__(cls):
        raise TypeError(f"type '{__name__}.Array' is not an acceptable base type")

    @property
    def shape(self):
        """The extents, a tuple."""
        return self._shape

    @property
    def dtype(self):
        """The kind of number, such as 'float32'."""
        return _name(self._dtype)

    @property
    def ndim(self):
        """How many dimensions."""
        return len(self._shape)

    @property
    def size(self):
        """How many numbers."""
        return _count(self._shape)

    @property
    def nbytes(self):
        """The bytes of the numbers."""
        return self.size * _size(self._dtype)

    def tolist(self):
        """Return the numbers as nested lists."""
        return _to_list(self, self._at, 0)

    def item(self):
        """Return the one number of an Array of size 1."""
        if self.size != 1:
            raise ValueError(f"expected an Array of one number, got {_words(self.dtype, self._shape)}")
        return _get(self._dtype, self._memory, self._at)

    def __len__(self):
        if not self._shape:
            raise TypeError("an Array without dimensions has no len()")
        return self._shape[0]

    def __bool__(self):
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, key):
        at, shape, strides, is_number = _index(self, key)
        if is_number:
            return _get(self._dtype, self._memory, at)
        return _array(self._dtype, shape, self._memory, at, strides)

    def __setitem__(self, key, value):
        at, shape, strides, _ = _index(self, key)
        data = _assigned(self._dtype, shape, value)  # apart, as it may come from the same memory
        _scatter(self._memory, at, _size(self._dtype), shape, strides, data)

    def __delitem__(self, key):
        raise TypeError("nothing of an Array can be deleted")

    def __repr__(self):
        edge = self.size if self.size <= 50 else 3 if self.ndim < 2 else 2 if self.ndim < 3 else 1
        shape = () if 0 < self.size <= 50 else self._shape
        shown = repr(_shown(self, self._at, 0, edge)).replace("Ellipsis", "...")
        return f"Array({shown}, {_words(self.dtype, shape)})"

    def __reduce__(self):
        return Array._restore, (self.dtype, self._shape, _dense(self))

    @staticmethod
    def _restore(name, shape, data):
        """Return the Array that __reduce__ took apart."""
        if not isinstance(shape, tuple):
            _refuse_type("Array", "shape", "a tuple", shape)
        found = [dtype for dtype in _DTYPES if _name(dtype) == name]
        if not found or min(shape, default=0) < 0 or _count(shape) * _size(found[0]) != len(data):
            raise ValueError(f"Array: expected the numbers of {name}{shape!r}, got {len(data)} bytes")
        return _array(found[0], shape, memoryview(bytearray(data)))

    @property
    def __array_interface__(self):
        if self._dtype == "bf16":
            raise AttributeError("no array of NumPy's holds bfloat16; use tolist()")
        return {
            "version": 3,
            "typestr": f"{'|' if _size(self._dtype) == 1 else '<'}{_kind(self._dtype)}{_size(self._dtype)}",
            "shape": self._shape,
            "strides": self._strides,
            "data": self._memory,
            "offset": self._at,
        }

    def __buffer__(self, flags, /):
        if self._dtype == "bf16":
            raise BufferError("no buffer can hold bfloat16; use tolist()")
        if not _is_dense(self):
            raise BufferError("this Array is strided, which plain Python cannot show; numpy.asarray(array) can")
        memory = self._memory[self._at : self._at + self.nbytes]
        if 0 in self._shape:
            return memory.cast(_DTYPES[self._dtype][3])
        return memory.cast(_DTYPES[self._dtype][3], self._shape)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Raise BufferError: plain Python has no DLPack."""
        raise BufferError("plain Python has no DLPack; pass numpy.asarray(array)")

    def __dlpack_device__(self):
        """Return the CPU."""
        return 1, 0


def _array(dtype, shape, memory, at=0, strides=None):
    """Return an Array that looks into memory, from a byte of it on."""
    array = object.__new__(Array)
    array._dtype, array._shape, array._memory, array._at = dtype, tuple(shape), memory, at
    array._strides = _dense_strides(dtype, shape) if strides is None else tuple(strides)
    return array


def _new_array(dtype, shape):
    """Return a dense Array with numbers of its own."""
    return _array(dtype, shape, memoryview(bytearray(_count(shape) * _size(dtype))))


def _is_dense(array):
    """Whether the numbers of an Array lie one behind the other."""
    dense = _dense_strides(array._dtype, array._shape)
    axes = zip(array._shape, array._strides, dense)
    return 0 in array._shape or all(extent == 1 or stride == other for extent, stride, other in axes)


def _dense(array):
    """Return the bytes of an Array's numbers, one behind the other."""
    return _gather(array._memory, array._at, _size(array._dtype), array._shape, array._strides)


def _to_list(array, at, axis):
    if axis == array.ndim:
        return _get(array._dtype, array._memory, at)
    stride = array._strides[axis]
    return [_to_list(array, at + i * stride, axis + 1) for i in range(array._shape[axis])]


def _shown(array, at, axis, edge):
    """Return nested lists for repr(): of axes longer than twice ``edge`` the two ends."""
    if axis == array.ndim:
        number = _get(array._dtype, array._memory, at)
        return _shortest(array._dtype, number) if _kind(array._dtype) == "f" else number
    extent, stride = array._shape[axis], array._strides[axis]
    places = [*range(edge), None, *range(extent - edge, extent)] if extent > 2 * edge else range(extent)
    return [... if i is None else _shown(array, at + i * stride, axis + 1, edge) for i in places]


def _index(array, key):
    """Return what an index picks: the first byte, the shape, the strides, and whether it is one number."""
    items = key if isinstance(key, tuple) else (key,)
    dots = sum(item is ... for item in items)
    rest = array.ndim - (len(items) - dots)
    if dots > 1:
        raise IndexError(f"expected one ... in an index, got {dots}")
    if rest < 0:
        raise IndexError(f"{len(items) - dots} indices for an Array with {array.ndim} dimensions")
    at, shape, strides, axis = array._at, [], [], 0
    for item in (*items, *([] if dots else [...])):
        if item is ...:
            shape += array._shape[axis : axis + rest]
            strides += array._strides[axis : axis + rest]
            axis += rest
            continue
        extent, stride = array._shape[axis], array._strides[axis]
        if isinstance(item, slice):
            start, stop, step = item.indices(extent)
            count = len(range(start, stop, step))
            at += start * stride if count else 0
            shape.append(count)
            strides.append(stride * (step if count > 1 else 1))
        else:
            at += _place(item, axis, extent) * stride
        axis += 1
    return at, tuple(shape), tuple(strides), not shape and not dots


def _place(item, axis, extent):
    """Return an integer of an index, counted from the start of its axis."""
    if not hasattr(type(item), "__index__"):
        raise TypeError("expected ints, slices and ... as index; numpy.asarray(array) can do more")
    index = _operator.index(item)
    place = index + extent if index < 0 else index
    if not 0 <= place < extent:
        raise IndexError(f"index {index} is out of range for dimension {axis} of size {extent}")
    return place


def _assigned(dtype, shape, value):
    """Return the bytes of a value that is set to all of a shape: a number, a buffer, or a list of such."""
    if isinstance(value, (list, tuple)):
        if not shape or len(value) != shape[0]:
            raise ValueError(f"Array: item: expected {_words(_name(dtype), shape)}, got a list of {len(value)}")
        return b"".join(_assigned(dtype, shape[1:], item) for item in value)
    view = _view(value)
    own = None if view is None else view._dtype if isinstance(view, Array) else _buffer_dtype(view)
    if view is not None and (view.ndim > 0 or own == dtype):
        return _repeated(dtype, shape, view, own)
    return _number_from("Array", "item", dtype, value) * _count(shape)


def _repeated(dtype, shape, view, own):
    """Return the bytes of a buffer, repeated along axes that it lacks or has with an extent of 1."""
    lacks = len(shape) - view.ndim
    fits = lacks >= 0 and all(n in (1, wanted) for n, wanted in zip(view.shape, shape[lacks:]))
    if not fits or own != dtype:
        got = _words(view.dtype, view.shape) if isinstance(view, Array) else _buffer_words(view)
        error = ValueError if own == dtype else TypeError
        raise error(f"Array: item: expected {_words(_name(dtype), shape)}, got {got}")
    data = _dense(view) if isinstance(view, Array) else view.tobytes()
    inner = _dense_strides(dtype, view.shape)
    strides = [0] * lacks + [0 if n == 1 else stride for n, stride in zip(view.shape, inner)]
    return _gather(data, 0, _size(dtype), shape, strides)
