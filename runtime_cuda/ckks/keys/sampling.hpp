// Random polynomials for keys and encryptions.
//
// All randomness comes from ChaCha20 (RFC 8439) under seeds of the operating system.
#pragma once

#include <array>
#include <cstdint>

#include "atlasc/base/files.hpp"
#include "ckks/ring/ring.hpp"

namespace atlasc::ckks {

/// A key of ChaCha20.
struct Seed {
    std::uint32_t words[8];
};

/// From the operating system.
Seed fresh_seed();

/// One block of ChaCha20: 16 words for a counter and a nonce of three words.
ATLASC_DEVICE inline void chacha20(const Seed& seed, std::uint32_t counter,
                                         const std::uint32_t (&nonce)[3],
                                         std::uint32_t (&block)[16]) {
    const std::uint32_t start[16] = {0x61707865U,   0x3320646eU,   0x79622d32U,   0x6b206574U,
                                     seed.words[0], seed.words[1], seed.words[2], seed.words[3],
                                     seed.words[4], seed.words[5], seed.words[6], seed.words[7],
                                     counter,       nonce[0],      nonce[1],      nonce[2]};
    for (int at = 0; at < 16; ++at) {
        block[at] = start[at];
    }
    const auto turn = [&block](int at, std::uint32_t other, int bits) {
        const std::uint32_t x = block[at] ^ other;
        block[at] = (x << bits) | (x >> (32 - bits));
    };
    const auto quarter = [&block, &turn](int a, int b, int c, int d) {
        block[a] += block[b];
        turn(d, block[a], 16);
        block[c] += block[d];
        turn(b, block[c], 12);
        block[a] += block[b];
        turn(d, block[a], 8);
        block[c] += block[d];
        turn(b, block[c], 7);
    };
    for (int round = 0; round < 10; ++round) {
        quarter(0, 4, 8, 12);
        quarter(1, 5, 9, 13);
        quarter(2, 6, 10, 14);
        quarter(3, 7, 11, 15);
        quarter(0, 5, 10, 15);
        quarter(1, 6, 11, 12);
        quarter(2, 7, 8, 13);
        quarter(3, 4, 9, 14);
    }
    for (int at = 0; at < 16; ++at) {
        block[at] += start[at];
    }
}

/// Which polynomial: never used twice with one seed. Each fact has a word of the nonce to itself, so
/// that no two polynomials share a block however many keys and digits there are. The third word is a
/// prime of a uniform polynomial, or one of the domains below.
struct Stream {
    Seed seed;
    std::uint32_t key = 0;    ///< number of a key among those made together
    std::uint32_t digit = 0;  ///< of the key
};

constexpr std::uint32_t error_domain = 1U << 31;
constexpr std::uint32_t secret_domain = 1U << 30;  ///< of the generator on the host
static_assert(most_primes + most_special < secret_domain, "a prime is no domain");

/// 128 random bits modulo a prime of 60 bits are uniform up to 2^-68; 4 residues a block.
struct Uniform {
    Stream stream;
    int log_degree;
    const Prime* primes;
    std::size_t first;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t start = 4 * at;
        const auto prime = static_cast<std::uint32_t>(first + (start >> log_degree));
        const std::uint32_t nonce[3] = {stream.key, stream.digit, prime};
        std::uint32_t block[16];
        const std::size_t mask = (std::size_t{1} << log_degree) - 1;
        chacha20(stream.seed, static_cast<std::uint32_t>(start & mask), nonce, block);
        for (int number = 0; number < 4; ++number) {
            Wide bits = 0;
            for (int word = 0; word < 4; ++word) {
                bits = (bits << 32) | block[4 * number + word];
            }
            out[start + number] = reduce(bits, primes[prime]);
        }
    }
};

// The next two take the same steps for all numbers, because these are secret.

/// How many bits are one: in pairs, in fours, in bytes, in all.
ATLASC_DEVICE inline int ones(std::uint32_t bits) {
    bits -= (bits >> 1) & 0x55555555U;
    bits = (bits & 0x33333333U) + ((bits >> 2) & 0x33333333U);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0fU;
    return static_cast<int>((bits * 0x01010101U) >> 24);
}

/// A number that is small against a prime, modulo it.
ATLASC_DEVICE inline Word residue(int number, const Prime& q) {
    const auto word = static_cast<Word>(static_cast<std::int64_t>(number));
    return word + (q.value & (Word{0} - (word >> 63)));
}

/// 21 bits against 21 bits; 8 coefficients a block.
struct ErrorResidues {
    Stream stream;
    int log_degree;
    const Prime* primes;
    std::size_t first;
    std::size_t count;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        constexpr std::uint32_t bits = (1U << 21) - 1;
        const std::uint32_t nonce[3] = {stream.key, stream.digit, error_domain};
        std::uint32_t block[16];
        chacha20(stream.seed, static_cast<std::uint32_t>(at), nonce, block);
        for (int number = 0; number < 8; ++number) {
            const int error = ones(block[2 * number] & bits) - ones(block[2 * number + 1] & bits);
            for (std::size_t limb = 0; limb < count; ++limb) {
                out[(limb << log_degree) + 8 * at + number] = residue(error, primes[first + limb]);
            }
        }
    }
};

/// Uniform residues modulo `count` primes from `first` on, to `out` [count][N].
void sample_uniform(const Ring& ring, const Stream& stream, Word* out, std::size_t first,
                    std::size_t count);

/// Coefficients of an error, modulo `count` primes from `first` on: a centred binomial distribution
/// of 42 bits, standard deviation 3.24.
void sample_error(const Ring& ring, const Stream& stream, Word* out, std::size_t first,
                  std::size_t count);

/// Of a secret, in {-1, 0, 1}.
using Coefficients = SecretVector<std::int8_t>;

/// Uniform ones, or `weight` that are not zero.
Coefficients uniform_secret(std::size_t degree);
Coefficients sparse_secret(std::size_t degree, int weight);

/// Values of a secret modulo all primes, on the device; overwritten at their end.
Words transformed_secret(const Ring& ring, const Coefficients& secret);

}  // namespace atlasc::ckks
