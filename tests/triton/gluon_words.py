"""Programs in Gluon, which has no interpreter, in the words of Triton's: layouts go, shared memory is a list.

What is copied to it is there only once it was waited for, and what is overwritten is gone at once. NVIDIA's
instructions are worked out on float16; the interpreter has no bfloat16.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl

import anychip.triton.gluon_programs

FOLDER = Path(anychip.triton.gluon_programs.__path__[0])
FILES = ("fragment_numbers", "fragment_groups", "fragment_sums", "fragments", "fragment_unpack")
LAYOUTS = (
    *("BlockedLayout", "DotOperandLayout", "NVMMADistributedLayout", "NVMMASharedLayout"),
    *("SliceLayout", "SwizzledSharedLayout"),
)
PLAIN = ("load", "store", "minimum", "maximum", "where", "join", "atomic_add", "program_id", "expand_dims")
TYPES = ("int16", "int32", "int64", "float16", "float32", "pointer_type")
HEADER = """
import triton.language as tl
from tests.triton.gluon_words import async_copy, fence_async_shared, gl, gluon, product
mma_v2 = warpgroup_mma = product
"""


class Layout:
    """Says nothing here."""

    def __init__(self, *arguments: object) -> None:
        return


class View:
    """A stage of shared memory, perhaps turned."""

    def __init__(self, stage: list[Any], turned: bool = False) -> None:
        self.stage, self.turned = stage, turned

    def permute(self, order: object) -> View:
        """The transpose."""
        return View(self.stage, True)

    def load(self, layout: object = None) -> Any:
        """What is there."""
        assert self.stage, "read before it is there"
        return tl.trans(self.stage[0]) if self.turned else self.stage[0]


class Shared:
    """Some stages."""

    def __init__(self, kind: object, shape: list[Any], layout: object) -> None:
        self.stages: list[list[Any]] = [[] for _ in range(_plain(shape[0]))]

    def index(self, number: Any) -> View:
        """One of them."""
        return View(self.stages[_plain(number)])


class Copies:
    """Groups of copies under way."""

    def __init__(self) -> None:
        self.groups: list[list[tuple[list[Any], Any]]] = [[]]

    def async_copy_global_to_shared(self, view: View, pointer: Any) -> None:
        """Begin one."""
        view.stage.clear()
        self.groups[-1].append((view.stage, tl.load(pointer)))

    def commit_group(self) -> None:
        """Those begun are a group."""
        self.groups.append([])

    def wait_group(self, outstanding: Any) -> None:
        """All groups but so many are there."""
        while len(self.groups) - 1 > _plain(outstanding):
            for stage, value in self.groups.pop(0):
                stage[:] = [value]


def interpreted(folder: Path) -> Any:
    """`multiply_fragments` as a program that Triton's interpreter runs, from a file that is written to `folder`."""
    path = folder / "interpreted_fragments.py"
    text = "\n".join((FOLDER / f"{name}.py").read_text() for name in FILES).replace("gl.constexpr", "tl.constexpr")
    text = re.sub(r"^(from|import) (?!anychip.triton.programs.order).*\n", "", text, flags=re.MULTILINE)
    path.write_text(HEADER + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a file that was just written"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def product(a: Any, b: Any, total: Any) -> Any:
    """A matrix instruction's."""
    return tl.dot(a, b.load() if isinstance(b, View) else b, total, input_precision="ieee")


def fence_async_shared() -> None:
    """Nothing to keep apart."""


def instruct(text: str, operands: str, values: list[Any], *rest: object, **options: object) -> Any:
    """One of NVIDIA's instructions on pairs of float16."""
    name = text.split(maxsplit=1)[0]
    if name == "mov.b32":
        return 0
    if name == "lop3.b32":
        mask, exponent = (int(number, 16) for number in re.findall(r"0x[0-9A-F]{8}", text))
        return (values[0] & mask) | exponent
    if name == "cvt.rn.f16x2.f32":
        return _narrowed(values[0]) | (_narrowed(values[0]) << 16)
    assert name == "fma.rn.f16x2", "an instruction that was not there when this was written"
    a, b, c = (tl.zeros_like(values[0]) + value for value in values)
    low, high = (_widened(a >> by) * _widened(b >> by) + _widened(c >> by) for by in (0, 16))
    return _narrowed(low) | (_narrowed(high) << 16)


def _widened(half: Any) -> Any:
    return (half & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


def _narrowed(number: Any) -> Any:
    return number.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


def _plain(value: Any) -> int:
    if isinstance(value, tl.tensor):
        return int(value.handle.data.item())
    return int(value.value if isinstance(value, tl.constexpr) else value)


def _later(name: str) -> Any:
    """One of Triton's words, as the interpreter has it when it is said."""

    def say(*arguments: Any, **named: Any) -> Any:
        return getattr(tl, name)(*arguments, **named)

    return say


def _words() -> Any:
    words: dict[str, Any] = dict.fromkeys(LAYOUTS, Layout)
    words |= {name: getattr(tl, name) for name in TYPES} | {name: _later(name) for name in PLAIN}
    words["arange"] = lambda start, end, layout: tl.arange(start, end)
    words["zeros"] = lambda shape, kind, layout: tl.zeros(shape, kind)
    words["full"] = lambda shape, value, kind, layout: tl.full(shape, value, kind)
    words["convert_layout"] = lambda value, layout, assert_trivial=False: value
    words["static_assert"] = lambda condition: None
    words["static_range"] = range
    return SimpleNamespace(**words, allocate_shared_memory=Shared, inline_asm_elementwise=instruct)


gl = _words()
gluon = SimpleNamespace(jit=triton.jit, constexpr_function=lambda function: function)
async_copy = Copies()
