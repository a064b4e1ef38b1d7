import numpy as np
import torch

from anychip.plugin import uniforms as public_uniforms
from anychip.sample.random import Purpose, stream_key, uniforms

MASK = 2**64 - 1


def splitmix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def expected(key, position, purpose):
    z = splitmix((key + (position * 16 + purpose) * 0x9E3779B97F4A7C15) & MASK)
    return [(z >> 40) * 2.0**-24, ((z >> 16) & (2**24 - 1)) * 2.0**-24]


def test_the_numbers_are_those_of_the_definition():
    seeds = [0, 1, -1, 42, 2**63 - 1, -(2**63), 123456789012345]
    keys = torch.tensor([stream_key(seed) for seed in seeds])
    for position in (0, 1, 77, 2**31 - 1):
        for purpose in Purpose:
            got = uniforms(keys, torch.full((len(seeds),), position, dtype=torch.int32), purpose)
            assert got.tolist() == [expected(int(key), position, purpose) for key in keys]
    assert ((got >= 0) & (got < 1)).all()


def test_published_splitmix_output():
    # The first output of SplitMix64 with state 0, as published with the generator.
    got = uniforms(torch.tensor([0x9E3779B97F4A7C15 - 2**64]), torch.tensor([0]), Purpose.SAMPLE)
    assert got[0, 0] == (0xE220A8397B1DCDAF >> 40) * 2.0**-24


def test_seeds_positions_and_purposes_are_independent():
    keys = torch.tensor([stream_key(seed) for seed in range(300)])
    table = torch.stack(
        [uniforms(keys, torch.full((300,), p), purpose) for p in range(100) for purpose in Purpose]
    ).double()
    flat = table.numpy().reshape(100, 2, 300, 2)
    assert abs(flat.mean() - 0.5) < 4 * (1 / 12 / flat.size) ** 0.5
    for axis, pairs in enumerate(flat.shape):
        one, other = np.split(np.take(flat, np.arange(pairs // 2 * 2), axis), 2, axis)
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / one.size**0.5
        shifted = np.take(flat, np.arange(1, pairs), axis), np.take(flat, np.arange(pairs - 1), axis)
        assert abs(np.corrcoef(shifted[0].ravel(), shifted[1].ravel())[0, 1]) < 5 / shifted[0].size ** 0.5
    histogram = np.histogram(flat, bins=64, range=(0, 1))[0]
    assert ((histogram - flat.size / 64) ** 2 / (flat.size / 64)).sum() < 63 + 5 * (2 * 63) ** 0.5


def test_a_stream_does_not_depend_on_its_neighbours():
    keys = torch.tensor([stream_key(seed) for seed in range(8)])
    positions = torch.arange(8)
    together = uniforms(keys, positions, Purpose.SAMPLE)
    for i in range(8):
        assert torch.equal(uniforms(keys[i : i + 1], positions[i : i + 1], Purpose.SAMPLE)[0], together[i])


def test_the_public_numbers_are_the_sampler_s_own():
    seeds = np.array([0, 1, -1, 42, 2**63 - 1, -(2**63), 123456789012345])
    keys = torch.tensor([stream_key(int(seed)) for seed in seeds])
    for position in (0, 1, 77, 2**31 - 1):
        positions = np.full(len(seeds), position)
        expected = uniforms(keys, torch.from_numpy(positions), Purpose.SAMPLE)
        assert public_uniforms(seeds, positions).tolist() == expected.tolist()
