"""A device that stores tokens where a real one stores keys and values, and believes nothing it is told.

Each slot of a block holds a token and the digest of all tokens up to it. A step reads every slot of each row's context,
as attention would, so a stale, early or wrong block breaks the chain of digests. The next token is a function of the
digest.
"""

from dataclasses import dataclass, field

import numpy as np

from anychip.engine.batch import NULL_BLOCK, PENDING, POOL, SAMPLE, Logprobs, Pooled, PromptLogprobs, StepResult

VOCABULARY = 7


def start_digest(seed):
    return hash((1, seed))


def extend_digest(digest, token):
    return hash((digest, int(token)))


def next_token(digest):
    return digest // 13 % VOCABULARY


def score(token, digest, width):
    """Invented log-probabilities of `token` after `digest`: ids [width], values [width], rank."""
    ids = [int(token), *range(100, 99 + width)]
    return ids, [float(digest % 89 + column) for column in range(width)], digest % 5 + 1


@dataclass
class Occupant:
    """What the device knows of a row, from admission to retirement."""

    number: int
    seed: int
    prompt_length: int
    sampling: object
    history: list | None
    last_token: int | None = None
    failed: bool = False


@dataclass
class Flight:
    """Blocks that a step names, (group, block) -> occupants, and those it writes, until it is committed."""

    step: int
    named: dict = field(default_factory=dict)
    written: dict = field(default_factory=dict)


class Device:
    """Runs a batch when it is submitted; the caller commits the results later, in order."""

    def __init__(self, plan, fails=lambda seed, step, row: False):
        self.plan, self.fails = plan, fails
        self.slots = [{} for _ in plan.groups]
        self.rows = {}
        self.flights = []
        self.computed = 0
        self.admissions = 0
        self.last_step = 0
        self.last_batch = None

    def submit(self, batch):
        self._check_shapes(batch)
        self._change_rows(batch)
        flight = self._take_off(batch)
        digests, errors = {}, {}
        for index, row in enumerate(batch.rows.tolist()):
            occupant = self.rows[row]
            if occupant.failed or self.fails(occupant.seed, self.last_step, row):
                occupant.failed = True
                errors[row] = "it broke"
            self._run_row(batch, index, occupant, digests)
        self.flights.append(flight)
        return self._result(batch, digests, errors)

    def submit_whole(self, batch):
        """The same for rows that bring their whole prompt and cache nothing."""
        self._check_shapes(batch)
        self._change_rows(batch)
        digests = {}
        for index, row in enumerate(batch.rows.tolist()):
            occupant = self.rows[row]
            digest = start_digest(occupant.seed)
            for at in range(*batch.query_start[index : index + 2].tolist()):
                digest = extend_digest(digest, batch.token_ids[at])
                digests[at] = (occupant, digest)
        return self._result(batch, digests, {})

    def committed(self):
        """The oldest step is committed."""
        self.flights.pop(0)

    def _check_shapes(self, batch):
        self.last_step += 1
        assert batch.step == self.last_step or batch is self.last_batch
        self.last_batch = batch
        counts = np.diff(batch.query_start)
        assert batch.query_start[0] == 0
        assert batch.query_start[-1] == batch.num_tokens == len(batch.positions)
        assert 0 < batch.num_tokens <= self.plan.max_num_batched_tokens
        assert (counts[: batch.num_single] == 1).all()
        assert (counts[batch.num_single :] > 1).all()
        assert len(set(batch.rows.tolist())) == batch.num_rows == len(batch.seq_lens)
        assert (np.diff(batch.logits_at) > 0).all()
        assert len(batch.targets) == len(batch.logits_at)
        for array in (batch.token_ids, batch.positions, batch.query_start, batch.seq_lens, batch.rows, batch.targets):
            assert array.dtype == np.int32
        assert len(batch.block_tables) == len(self.plan.groups)

    def _change_rows(self, batch):
        for row in batch.retired:
            del self.rows[row]
        for admitted in batch.admitted:
            assert admitted.row not in self.rows, "a row was admitted that is in use"
            history = None
            if admitted.sampling.needs_history:
                history = [*admitted.prompt_token_ids.tolist(), *admitted.output_token_ids.tolist()]
            self.admissions += 1
            self.rows[admitted.row] = Occupant(
                self.admissions, admitted.sampling.seed, admitted.prompt_length, admitted.sampling, history
            )

    def _take_off(self, batch):
        """Check what this step names against all steps under way, itself included."""
        flight = Flight(self.last_step)
        size = self.plan.block_size
        for index, row in enumerate(batch.rows.tolist()):
            number, length = self.rows[row].number, int(batch.seq_lens[index])
            first = int(batch.positions[batch.query_start[index]])
            for group, table in enumerate(batch.block_tables):
                blocks = table[index, : -(-length // size)].tolist()
                assert NULL_BLOCK not in blocks
                assert max(blocks) < self.plan.groups[group].num_blocks
                assert len(set(blocks)) == len(blocks)
                for place, block in enumerate(blocks):
                    flight.named.setdefault((group, block), set()).add(number)
                    if place >= first // size:
                        assert flight.written.setdefault((group, block), number) == number
        for other in [*self.flights, flight]:
            for key, number in flight.written.items():
                assert other.named.get(key, {number}) == {number}, "a block was reused while a step names it"
            for key, numbers in flight.named.items():
                assert numbers == {other.written.get(key, min(numbers))} or key not in other.written, (
                    "a block was published while a step writes it"
                )
        return flight

    def _run_row(self, batch, index, occupant, digests):
        start, end = batch.query_start[index : index + 2].tolist()
        positions = batch.positions[start:end].tolist()
        assert positions == list(range(positions[0], positions[0] + end - start))
        assert positions[-1] + 1 == batch.seq_lens[index]
        tables = [table[index].tolist() for table in batch.block_tables]
        self.computed += end - start
        if occupant.failed:
            for position in positions:
                self._write(tables, position, None)
            digests.update(dict.fromkeys(range(start, end), (occupant, 0)))
            return
        digest, tokens = self._read(tables, occupant, positions[0])
        for at, position in zip(range(start, end), positions, strict=True):
            token = int(batch.token_ids[at])
            if token == PENDING:
                assert at == end - 1
                token = occupant.last_token
            tokens.append(token)
            digest = extend_digest(digest, token)
            self._write(tables, position, (token, digest))
            digests[at] = (occupant, digest)
        if occupant.history is not None:
            assert tokens == occupant.history[: len(tokens)], "the history the device was given is not what it computed"

    def _read(self, tables, occupant, length):
        """Digest and tokens of a row's first `length` slots, all of them checked, in every group."""
        size, found = self.plan.block_size, []
        for slots, table in zip(self.slots, tables, strict=True):
            digest, tokens = start_digest(occupant.seed), []
            for position in range(length):
                token, stored = slots[table[position // size], position % size]
                digest = extend_digest(digest, token)
                assert digest == stored, "a block does not hold this row's beginning"
                tokens.append(token)
            found.append((digest, tokens))
        assert all(one == found[0] for one in found)
        return found[0]

    def _write(self, tables, position, content):
        size = self.plan.block_size
        for slots, table in zip(self.slots, tables, strict=True):
            slots[table[position // size], position % size] = content or (None, None)

    def _result(self, batch, digests, errors):
        rows, sampled, found, scored, pooled = [], [], [], [], []
        for at, target in zip(batch.logits_at.tolist(), batch.targets.tolist(), strict=True):
            occupant, digest = digests[at]
            row = int(batch.rows[np.searchsorted(batch.query_start, at, side="right") - 1])
            if row in errors:
                continue
            if target == SAMPLE:
                occupant.last_token = next_token(digest)
                if occupant.history is not None:
                    occupant.history.append(occupant.last_token)
                rows.append(row)
                sampled.append(occupant.last_token)
                found.append((occupant.last_token, digest))
            elif target == POOL:
                pooled.append((row, vector(digest)))
            else:
                assert occupant.sampling.prompt_logprobs is not None
                scored.append((row, int(batch.positions[at]) + 1, target, digest))
        samplings = [self.rows[row].sampling for row in batch.rows.tolist()]
        return StepResult(
            rows=np.array(rows, np.int32),
            token_start=np.arange(len(rows) + 1, dtype=np.int32),
            token_ids=np.array(sampled, np.int32),
            logprobs=_logprobs(found, [one.logprobs for one in samplings]),
            prompt_logprobs=_prompt_logprobs(scored, [one.prompt_logprobs for one in samplings]),
            pooled=_pooled(pooled),
            errors=errors,
        )


def vector(digest):
    """An invented vector of all tokens up to `digest`."""
    return [float(digest % 1009), float(digest % 97)]


def _pooled(pooled):
    if not pooled:
        return None
    rows, vectors = zip(*pooled, strict=True)
    return Pooled(np.array(rows, np.int32), np.array(vectors, np.float32))


def _logprobs(found, asked):
    if all(number is None for number in asked):
        return None
    width = 1 + max(number for number in asked if number is not None)
    scores = [score(token, digest, width) for token, digest in found]
    ids, values, ranks = zip(*scores, strict=True) if scores else ((), (), ())
    return Logprobs(
        np.array(ids, np.int32).reshape(-1, width),
        np.array(values, np.float32).reshape(-1, width),
        np.array(ranks, np.int32),
    )


def _prompt_logprobs(scored, asked):
    logprobs = _logprobs([(token, digest) for _, _, token, digest in scored], asked)
    if logprobs is None:
        return None
    rows, positions = [one[0] for one in scored], [one[1] for one in scored]
    return PromptLogprobs(np.array(rows, np.int32), np.array(positions, np.int32), logprobs)
