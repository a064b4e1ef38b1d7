"""Prefix caching: a hash chain over full blocks, and the index from hash to block.

A block's hash covers its own tokens and, through its parent's hash, all tokens before them, so equal hashes mean equal
beginnings. Hashes are 128 bits of BLAKE2b: nobody can craft two prompts that share a block by accident or intent.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from anychip.engine.batch import NULL_BLOCK, Int32

BlockHash = bytes


def root_hash(salt: str) -> BlockHash:
    """The parent of a sequence's first block; sequences with different salts never meet."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def extend_chain(chain: list[BlockHash], tokens: Int32, block_size: int, root: BlockHash) -> None:
    """Append to `chain` the hashes of all further full blocks of `tokens` [n]."""
    parent = chain[-1] if chain else root
    first, end = len(chain) * block_size, len(tokens) // block_size * block_size
    content, size = tokens[first:end].tobytes(), block_size * tokens.itemsize
    for start in range(0, len(content), size):
        parent = blake2b(content[start : start + size], key=parent, digest_size=16).digest()
        chain.append(parent)


class PrefixIndex:
    """Which block holds which hash; a block holds at most one, and a hash lies in at most one block."""

    def __init__(self) -> None:
        self._block_of: dict[BlockHash, int] = {}
        self._hash_of: dict[int, BlockHash] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._hash_of

    def __len__(self) -> int:
        return len(self._hash_of)

    def find(self, block_hash: BlockHash) -> int | None:
        """The block with this hash, or None."""
        return self._block_of.get(block_hash)

    def match(self, chain: Sequence[BlockHash]) -> int:
        """How many hashes from the start of `chain` are here."""
        for count, block_hash in enumerate(chain):
            if block_hash not in self._block_of:
                return count
        return len(chain)

    def publish(self, block: int, block_hash: BlockHash) -> None:
        """Offer a computed block for reuse; the first block with a hash keeps it."""
        if block_hash not in self._block_of and block not in self._hash_of:
            self._block_of[block_hash] = block
            self._hash_of[block] = block_hash

    def check_integrity(self) -> None:
        """Compare both directions; an AssertionError is a bug of ours."""
        assert self._block_of == {block_hash: block for block, block_hash in self._hash_of.items()}, (
            "the prefix index finds a block that does not hold the hash"
        )
        assert NULL_BLOCK not in self._hash_of, "the null block is offered for reuse"

    def forget(self, block: int) -> None:
        """The block's content is about to change."""
        block_hash = self._hash_of.pop(block, None)
        if block_hash is not None:
            del self._block_of[block_hash]
