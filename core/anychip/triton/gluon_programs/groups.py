"""Attention of rows that bring several tokens, where warps of one program do different things (NVIDIA's 9.0, in Gluon).

One warp copies tiles of keys and values into a ring of memory, ahead of two groups of four warps that multiply, each
its half of a piece's lines. While the tensor cores multiply the weights of one tile with its values, a group works out
the next tile's weights:

    copies    K0 V0 K1 V1 K2 ..              a place is free again once both groups have read it
    products  K0    K1 V0    K2 V1    ..
    softmax      0        1        2         runs beside V of the tile before

Programs stay, and take the next piece when they are done with one: pieces are of very different lengths. What a row's
last page holds too much is read as zeros, as in `anychip.triton.programs.pages`.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from anychip.triton.gluon_programs.group_scores import LINES, begin, score, seen, weigh

PIECE = gl.constexpr(8)


@gluon.jit(do_not_specialize=["stride_table", "kv_heads"], do_not_specialize_on_alignment=["table", "taken"])
def attend_grouped(
    q, k_tiles, v_tiles, table, pieces, taken, out, sinks, scale, softcap, stride_qt, stride_qh, stride_table,
    kv_heads, OVERLAP: gl.constexpr, G: gl.constexpr, D: gl.constexpr, PAGE: gl.constexpr, WINDOW:
    gl.constexpr, SOFTCAP: gl.constexpr, SINKS: gl.constexpr, TOKENS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D:
    gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """As `attend_queries`, by descriptors of [1, PART, BLOCK_D] of [block * head, PAGE, D].

    `taken`: how many pieces were taken, how many programs have ended, both 0 before and after, and how many there are.
    """
    if OVERLAP:
        _instruct("griddepcontrol.launch_dependents; // $0")
        _instruct("griddepcontrol.wait; // $0")
    num_pieces = gl.load(taken + 2)
    kind: gl.constexpr = q.dtype.element_ty
    part: gl.constexpr = k_tiles.block_type.shape[1]
    lines: gl.constexpr = gl.NVMMASharedLayout.get_default_for([LINES, BLOCK_D], kind)
    queries = gl.allocate_shared_memory(kind, [2, LINES, BLOCK_D], lines)
    keys = gl.allocate_shared_memory(kind, [STAGES, BLOCK_N // part, part, BLOCK_D], k_tiles.layout)
    values = gl.allocate_shared_memory(kind, [STAGES, BLOCK_N // part, part, BLOCK_D], v_tiles.layout)
    number = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    k_filled, k_read = _barriers(STAGES)
    v_filled, v_read = _barriers(STAGES)
    told, heard = _barriers(2)
    fence_async_shared()
    ring = (keys, values, k_filled, k_read, v_filled, v_read)
    news = (number, told, heard)
    work = (pieces, num_pieces, kv_heads)
    tensors = (q, out, stride_qt, stride_qh)
    scoring = (sinks, scale, softcap)
    SHAPE: gl.constexpr = (G, D, WINDOW, SOFTCAP, SINKS, TOKENS, part, BLOCK_N, BLOCK_D, STAGES)
    gl.warp_specialize(
        [
            (_attend_all, (tensors, scoring, queries.index(0), 0, ring, news, work, SHAPE)),
            (_attend_all, (tensors, scoring, queries.index(1), LINES, ring, news, work, SHAPE)),
            (_copy_all, (k_tiles, v_tiles, ring, news, work, taken, table, stride_table, PAGE, SHAPE)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _barriers(COUNT: gl.constexpr):
    """For places that one warp fills, and both groups read."""
    filled = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    read = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(COUNT):
        mbarrier.init(filled.index(place), count=1)
        mbarrier.init(read.index(place), count=2)
    return filled, read


@gluon.jit
def _copy_all(
    k_tiles, v_tiles, ring, news, work, taken, table, stride_table, PAGE: gl.constexpr, SHAPE: gl.constexpr
):  # fmt: skip
    """Take pieces, tell the groups which, and copy their keys and values. -1 says that there are no more."""
    keys, values, k_filled, k_read, v_filled, v_read = ring
    pieces, num_pieces, kv_heads = work
    WINDOW: gl.constexpr = SHAPE[2]
    BLOCK_N: gl.constexpr = SHAPE[7]
    STAGES: gl.constexpr = SHAPE[9]
    turn = 0
    told = 0
    item = gl.atomic_add(taken, 1)
    while item < num_pieces * kv_heads:
        row = gl.load(pieces + item % num_pieces * PIECE)
        _tell(news, told, item)
        told += 1
        low, end, length = _span(pieces, item % num_pieces, WINDOW, BLOCK_N)
        where = (table + row.to(gl.int64) * stride_table, end, length, item // num_pieces, kv_heads)
        for start in range(low, end, BLOCK_N):
            place = turn % STAGES
            phase = (turn // STAGES) & 1
            turn += 1
            mbarrier.wait(k_read.index(place), phase ^ 1)
            _copy(k_tiles, keys.index(place), k_filled.index(place), where, start, PAGE, SHAPE)
            mbarrier.wait(v_read.index(place), phase ^ 1)
            _copy(v_tiles, values.index(place), v_filled.index(place), where, start, PAGE, SHAPE)
        item = gl.atomic_add(taken, 1)
    _tell(news, told, -1)
    if gl.atomic_add(taken + 1, 1) == gl.num_programs(0) - 1:  # nobody is left to count
        gl.store(taken, 0)
        gl.store(taken + 1, 0)


@gluon.jit
def _copy(tiles, target, filled, where, start, PAGE: gl.constexpr, SHAPE: gl.constexpr):
    """Keys or values `start` to start + BLOCK_N; for parts behind the end the first one again, which no query sees."""
    table_row, end, length, kv_head, kv_heads = where
    PART: gl.constexpr = SHAPE[6]
    BLOCK_N: gl.constexpr = SHAPE[7]
    BYTES: gl.constexpr = BLOCK_N * SHAPE[8] * 2
    mbarrier.expect(filled, BYTES)
    for part in gl.static_range(BLOCK_N // PART):
        at = start + part * PART
        at = gl.where(at < end, at, start)
        plane = gl.load(table_row + at // PAGE) * kv_heads + kv_head
        behind = gl.maximum(at + PART - length, 0)
        tma.async_copy_global_to_shared(tiles, [plane, at % PAGE - behind, 0], filled, target.slice(part, 1))


@gluon.jit
def _tokens(pieces, number):
    """First token of a piece, end of tokens, position of the first one."""
    line = pieces + number * PIECE
    return gl.load(line + 1), gl.load(line + 2), gl.load(line + 3)


@gluon.jit
def _span(pieces, number, WINDOW: gl.constexpr, BLOCK_N: gl.constexpr):
    """First key that a piece reads, end of keys, length of its row."""
    first, stop, begin = _tokens(pieces, number)
    length = gl.load(pieces + number * PIECE + 4)
    end = gl.minimum(begin + stop - first, length)  # a row of padding has one key, however many tokens
    low = gl.maximum(begin - WINDOW + 1, 0) // BLOCK_N * BLOCK_N if WINDOW > 0 else 0
    return low, end, length


@gluon.jit
def _tell(news, count, item):
    """Say which piece is next."""
    number, told, heard = news
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    place = count & 1
    mbarrier.wait(heard.index(place), ((count >> 1) & 1) ^ 1)
    number.index(place).store(gl.full([1], item, gl.int32, one))
    mbarrier.arrive(told.index(place), count=1)


@gluon.jit
def _hear(news, count):
    """Which piece is next."""
    number, told, heard = news
    one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    place = count & 1
    mbarrier.wait(told.index(place), (count >> 1) & 1)
    item = gl.max(number.index(place).load(one), 0)
    mbarrier.arrive(heard.index(place), count=1)
    return item


@gluon.jit
def _attend_all(tensors, scoring, queries, LINE: gl.constexpr, ring, news, work, SHAPE: gl.constexpr):
    """LINES lines of each piece, from LINE on."""
    pieces, num_pieces, kv_heads = work
    turn = 0
    heard = 0
    item = _hear(news, heard)
    while item >= 0:
        tokens = _tokens(pieces, item % num_pieces)
        span = _span(pieces, item % num_pieces, SHAPE[2], SHAPE[7])
        head = (item // num_pieces, kv_heads)
        turn = _attend(tensors, scoring, queries, LINE, ring, tokens, span, head, turn, SHAPE)
        heard += 1
        item = _hear(news, heard)


@gluon.jit
def _attend(
    tensors, scoring, queries, LINE: gl.constexpr, ring, tokens, span, head, turn, SHAPE: gl.constexpr
):  # fmt: skip
    """Line m of a piece holds token m // G, head m % G. Returns how many tiles were read so far."""
    keys, values, k_filled, k_read, v_filled, v_read = ring
    low, end, length = span
    BLOCK_N: gl.constexpr = SHAPE[7]
    BLOCK_D: gl.constexpr = SHAPE[8]
    STAGES: gl.constexpr = SHAPE[9]
    by_key: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    by_dim: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, by_dim, 2)
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_D, BLOCK_D // 8], [4, 1], [1, 0])
    pointers, target, valid = _lines(tensors, LINE, tokens, head, rows, SHAPE)
    queries.store(gl.load(pointers, valid, other=0.0))
    fence_async_shared()
    position, highest, mass = begin(scoring[0], LINE, tokens, head[0], gl.SliceLayout(1, by_key), SHAPE)
    seeing = (position, tokens[2], end, length)
    total = gl.zeros([LINES, BLOCK_D], gl.float32, by_dim)
    nothing = gl.zeros([LINES, BLOCK_N], gl.float32, by_key)
    place = turn % STAGES
    mbarrier.wait(k_filled.index(place), (turn // STAGES) & 1)
    scores = score(queries, keys.index(place), nothing, BLOCK_N, BLOCK_D)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(k_read.index(place), count=1)
    scores = seen(scores, seeing, low, scoring, by_key, SHAPE)
    weights, shrink, highest, mass = weigh(scores, highest, mass, scoring[1], SHAPE[3])
    weights = gl.convert_layout(weights.to(queries.dtype), left)
    mbarrier.wait(k_filled.index((turn + 1) % STAGES), ((turn + 1) // STAGES) & 1, pred=low + BLOCK_N < end)
    for start in range(low + BLOCK_N, end, BLOCK_N):
        last, last_phase = turn % STAGES, (turn // STAGES) & 1
        turn += 1
        place = turn % STAGES
        scores = score(queries, keys.index(place), nothing, BLOCK_N, BLOCK_D)
        mbarrier.wait(v_filled.index(last), last_phase)
        total = warpgroup_mma(weights, values.index(last).reshape([BLOCK_N, BLOCK_D]), total, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[scores])
        mbarrier.arrive(k_read.index(place), count=1)
        scores = seen(scores, seeing, start, scoring, by_key, SHAPE)
        following, shrink, highest, mass = weigh(scores, highest, mass, scoring[1], SHAPE[3])
        following = gl.convert_layout(following.to(queries.dtype), left)
        # Waiting for the next keys here keeps the compiler from moving the above behind the product of values.
        after = turn + 1
        mbarrier.wait(k_filled.index(after % STAGES), (after // STAGES) & 1, pred=start + BLOCK_N < end)
        total, weights, mass = warpgroup_mma_wait(0, deps=[total, following, mass])
        mbarrier.arrive(v_read.index(last), count=1)
        total = total * gl.convert_layout(shrink, gl.SliceLayout(1, by_dim))[:, None]
    place = turn % STAGES
    mbarrier.wait(v_filled.index(place), (turn // STAGES) & 1)
    total = warpgroup_mma(weights, values.index(place).reshape([BLOCK_N, BLOCK_D]), total, is_async=True)
    total = warpgroup_mma_wait(0, deps=[total])
    mbarrier.arrive(v_read.index(place), count=1)
    total = total * gl.convert_layout(1.0 / mass, gl.SliceLayout(1, by_dim))[:, None]
    queries.store(total.to(queries.dtype))  # each thread then writes what lies side by side
    gl.store(target, queries.load(rows), valid)
    return turn + 1


@gluon.jit
def _lines(tensors, LINE: gl.constexpr, tokens, head, LAYOUT: gl.constexpr, SHAPE: gl.constexpr):
    """Where a group's lines of queries come from, where their results go, and which of them there are."""
    q, out, stride_qt, stride_qh = tensors
    kv_head, kv_heads = head
    G: gl.constexpr = SHAPE[0]
    D: gl.constexpr = SHAPE[1]
    TOKENS: gl.constexpr = SHAPE[5]
    BLOCK_D: gl.constexpr = SHAPE[8]
    lines = LINE + gl.arange(0, LINES, gl.SliceLayout(1, LAYOUT))
    dims = gl.arange(0, BLOCK_D, gl.SliceLayout(0, LAYOUT))
    token = tokens[0] + lines // G
    heads = kv_head * G + lines % G
    valid = ((token < tokens[1]) & (lines < TOKENS * G))[:, None] & (dims < D)[None, :]
    token = token.to(gl.int64)
    sources = token[:, None] * stride_qt + heads[:, None] * stride_qh + dims[None, :]
    targets = (token * kv_heads * G + heads)[:, None] * D + dims[None, :]
    return q + sources, out + targets, valid


@gluon.jit
def _instruct(TEXT: gl.constexpr):
    gl.inline_asm_elementwise(TEXT, "=r", [], dtype=gl.int32, is_pure=False, pack=1)
