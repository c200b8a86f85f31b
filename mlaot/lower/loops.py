"""Plain loops: elementwise work on values of any dtype, one element after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlaot.ir import Node
from mlaot.lower.emit import Emitter
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access
from mlaot.lower.program import Buffer, Plain
from mlaot.ops import structure as st
from mlaot.ops.kinds import base_of


def loops_kernel(group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> Plain:
    """The kernel of a group of kind "loops": every node in a variable of its own type."""
    emit = Emitter(group, accesses, stores)
    at = [f"i{i}" for i in range(len(group.rows))]
    body: list[str] = []
    loaded: dict[Node, str] = {}
    for node in group.nodes:
        args = []
        for a in node.args:
            found = a.find()
            if base_of(found) in emit.inside:
                args.append(emit.names[base_of(found)])
                continue
            text = emit.value(found, at)
            if "[" in text:
                if found not in loaded:
                    loaded[found] = f"x{len(loaded)}"
                    body.append(f"const {emit.ctype(found)} {loaded[found]} = {text};")
                text = loaded[found]
            args.append(text)
        name = emit.names[node]
        if node.op is st.one_hot:
            value = f"({emit.ctype(node)})((int64_t){args[0]} == {at[-1]})"
        else:
            value = emit.expression(node, args, vector=False)
        body.append(f"const {emit.ctype(node)} {name} = {value};")
        for buffer in stores.get(node, ()):
            value = f"(uint8_t){name}" if buffer.dtype == "bool" else name
            body.append(f"{emit.buffer(buffer, written=True)}[{Access(buffer, buffer.strides).index(at)}] = {value};")
    loops = tuple((v, str(d)) for v, d in zip(at, group.rows, strict=True))
    return Plain(group.dtype, emit.params, (), tuple(emit.once), loops, tuple(body), emit.doc())
