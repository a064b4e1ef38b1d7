"""The header of a GGUF file: metadata and tensor table, decoded on demand from a memory map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
Token lists are long, so an array is only walked over when the file is opened and decoded when it is asked for.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from anychip.errors import UserError
from anychip.weights.gguf_types import TensorType, tensor_type

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SIZES = {kind: struct.calcsize("<" + code) for kind, code in _FORMATS.items()}
_UINT64 = struct.Struct("<Q")
_UINT32 = struct.Struct("<I")
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is outermost first, as in torch; `start` and `nbytes` count bytes of the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    nbytes: int


class GGUFFile:
    """An open GGUF file. Raises `UserError` for a file that is not GGUF, truncated or corrupt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.buffer = _map(path)
        self.tensors: dict[str, GGUFTensor] = {}
        self._fields: dict[str, tuple[int, int]] = {}
        self._decoded: dict[str, Any] = {}
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError):
            self._corrupt("ends within its header")

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a metadata key: number, bool, str, or a list of them."""
        if key not in self._fields:
            return default
        if key not in self._decoded:
            kind, position = self._fields[key]
            self._decoded[key] = self._decode(kind, position)
        return self._decoded[key]

    def require(self, key: str) -> Any:
        """Like `get`, for a key that the file cannot be used without."""
        if key not in self._fields:
            raise UserError(f"{self.path} has no metadata {key!r}.", "Convert or download the model again.")
        return self.get(key)

    def _read_header(self) -> None:
        if self.buffer[:4] != b"GGUF":
            raise UserError(f"{self.path} is not a GGUF file.", "Give a .gguf file made by llama.cpp's converter.")
        version = self._number(_UINT32, 4)
        if version not in (2, 3):
            raise UserError(
                f"{self.path} is GGUF version {version if version < 1 << 16 else 'of a big-endian machine'}; "
                "versions 2 and 3, little-endian, are read.",
                "Convert the model again with a current llama.cpp.",
            )
        tensor_count, field_count = self._number(_UINT64, 8), self._number(_UINT64, 16)
        position = 24
        for _ in range(field_count):
            key, position = self._string(position)
            kind = self._number(_UINT32, position)
            self._fields[key] = (kind, position + 4)
            position = self._skip(kind, position + 4)
        self._read_tensor_table(tensor_count, position)

    def _read_tensor_table(self, tensor_count: int, position: int) -> None:
        table = []
        for _ in range(tensor_count):
            entry, position = self._tensor_entry(position)
            table.append(entry)
        alignment = int(self.get("general.alignment", 32))
        if alignment <= 0 or alignment & (alignment - 1):
            self._corrupt(f"has an alignment of {alignment}")
        data_start = -(-position // alignment) * alignment
        for name, kind_number, shape, offset in table:
            self._place(name, tensor_type(kind_number), shape, data_start + offset)

    def _tensor_entry(self, position: int) -> tuple[tuple[str, int, tuple[int, ...], int], int]:
        name, position = self._string(position)
        dimensions = self._number(_UINT32, position)
        if dimensions > _MAX_DIMENSIONS:
            self._corrupt(f"gives {name!r} {dimensions} dimensions")
        sizes = struct.unpack_from(f"<{dimensions}Q", self.buffer, position + 4)
        position += 4 + 8 * dimensions
        return (name, self._number(_UINT32, position), sizes[::-1], self._number(_UINT64, position + 4)), position + 12

    def _place(self, name: str, kind: TensorType, shape: tuple[int, ...], start: int) -> None:
        values = 1
        for size in shape:
            values *= size
        if shape and shape[-1] % kind.block_values:
            self._corrupt(f"gives {name!r} rows of {shape[-1]} values, no multiple of {kind.name}'s block")
        nbytes = values // kind.block_values * kind.block_bytes
        if start + nbytes > len(self.buffer):
            self._corrupt(f"ends within tensor {name!r}")
        self.tensors[name] = GGUFTensor(name, kind, shape, start, nbytes)

    def _number(self, layout: struct.Struct, position: int) -> int:
        value: int = layout.unpack_from(self.buffer, position)[0]
        return value

    def _string(self, position: int) -> tuple[str, int]:
        start = position + 8
        end = start + self._number(_UINT64, position)
        if end > len(self.buffer):
            self._corrupt("ends within a string")
        return self.buffer[start:end].decode("utf-8", errors="replace"), end

    def _skip(self, kind: int, position: int) -> int:
        if kind == _STRING:
            end = position + 8 + self._number(_UINT64, position)
        elif kind == _ARRAY:
            end = self._skip_array(position)
        elif kind in _SIZES:
            end = position + _SIZES[kind]
        else:
            self._corrupt(f"holds a value of unknown type {kind}")
        if end > len(self.buffer):
            self._corrupt("ends within its metadata")
        return end

    def _skip_array(self, position: int) -> int:
        kind, count = self._number(_UINT32, position), self._number(_UINT64, position + 4)
        position += 12
        if kind in _SIZES:
            return position + count * _SIZES[kind]
        if kind != _STRING:
            self._corrupt(f"holds an array of unknown type {kind}")
        unpack, buffer = _UINT64.unpack_from, self.buffer
        for _ in range(count):
            position += 8 + unpack(buffer, position)[0]
        return position

    def _decode(self, kind: int, position: int) -> Any:
        if kind == _STRING:
            return self._string(position)[0]
        if kind != _ARRAY:
            return struct.unpack_from("<" + _FORMATS[kind], self.buffer, position)[0]
        item, count = self._number(_UINT32, position), self._number(_UINT64, position + 4)
        position += 12
        if item != _STRING:
            return list(struct.unpack_from(f"<{count}{_FORMATS[item]}", self.buffer, position))
        strings = []
        unpack, buffer = _UINT64.unpack_from, self.buffer
        for _ in range(count):
            start = position + 8
            position = start + unpack(buffer, position)[0]
            strings.append(buffer[start:position].decode("utf-8", errors="replace"))
        return strings

    def _corrupt(self, problem: str) -> NoReturn:
        raise UserError(
            f"{self.path} {problem}: the file is truncated or corrupt ({len(self.buffer):,} bytes).",
            "Download it again and compare its size.",
        )


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise UserError(f"{path} is empty.", "Download it again.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.") from None
