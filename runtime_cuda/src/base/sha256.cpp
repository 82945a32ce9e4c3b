#include "atlasc/base/sha256.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "atlasc/base/files.hpp"

namespace atlasc {
namespace {

using State = std::array<std::uint32_t, 8>;

constexpr std::size_t block_size = 64;

alignas(16) constexpr std::uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t turned(std::uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

std::uint32_t big_endian(const std::uint8_t* bytes) {
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
           std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

void one_block(State& state, const std::uint8_t* data) {
    std::uint32_t w[64];
    for (int at = 0; at < 16; ++at) {
        w[at] = big_endian(data + 4 * at);
    }
    for (int at = 16; at < 64; ++at) {
        const std::uint32_t x = w[at - 15];
        const std::uint32_t y = w[at - 2];
        w[at] = w[at - 16] + (turned(x, 7) ^ turned(x, 18) ^ x >> 3) + w[at - 7] +
                (turned(y, 17) ^ turned(y, 19) ^ y >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int at = 0; at < 64; ++at) {
        const std::uint32_t one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[at] + w[at];
        const std::uint32_t two =
            (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + one;
        d = c;
        c = b;
        b = a;
        a = one + two;
    }
    const std::uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (std::size_t at = 0; at < 8; ++at) {
        state[at] += after[at];
    }
}

void portable_blocks(State& state, const std::uint8_t* data, std::size_t count) {
    for (; count > 0; --count, data += block_size) {
        one_block(state, data);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)

bool has_instructions() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    const bool sse = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_1) != 0;
    return sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

/// With Intel's SHA extensions, two rounds at a time on the words ABEF and CDGH.
__attribute__((target("sha,sse4.1"))) void fast_blocks(State& state, const std::uint8_t* data,
                                                       std::size_t count) {
    const auto load = [](const void* from) {
        return _mm_loadu_si128(static_cast<const __m128i*>(from));
    };
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i cdab = _mm_shuffle_epi32(load(&state[0]), 0xB1);
    const __m128i efgh = _mm_shuffle_epi32(load(&state[4]), 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; count > 0; --count, data += block_size) {
        const __m128i before[2] = {abef, cdgh};
        __m128i w[4];  // the last sixteen words of the schedule
        for (int at = 0; at < 16; ++at) {
            __m128i& next = w[at % 4];
            const __m128i& last = w[(at + 3) % 4];
            if (at < 4) {
                next = _mm_shuffle_epi8(load(data + 16 * at), big_endian);
            } else {
                const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(next, w[(at + 1) % 4]),
                                                  _mm_alignr_epi8(last, w[(at + 2) % 4], 4));
                next = _mm_sha256msg2_epu32(sum, last);
            }
            const __m128i term = _mm_add_epi32(next, load(constants + 4 * at));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, term);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(term, 0x0E));
        }
        abef = _mm_add_epi32(abef, before[0]);
        cdgh = _mm_add_epi32(cdgh, before[1]);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

#else

bool has_instructions() { return false; }
constexpr auto fast_blocks = portable_blocks;

#endif

}  // namespace

Sha256::Sha256(bool portable)
    : blocks_(!portable && has_instructions() ? fast_blocks : portable_blocks) {}

void Sha256::add(const void* data, std::size_t size) {
    const auto* next = static_cast<const std::uint8_t*>(data);
    while (size > 0) {
        const std::size_t filled = size_ % rest_.size();
        if (filled == 0 && size >= block_size) {
            const std::size_t whole = size / block_size;
            blocks_(state_, next, whole);
            next += whole * block_size;
            size -= whole * block_size;
            size_ += whole * block_size;
            continue;
        }
        const std::size_t taken = std::min(size, rest_.size() - filled);
        std::memcpy(rest_.data() + filled, next, taken);
        next += taken;
        size -= taken;
        size_ += taken;
        if (filled + taken == rest_.size()) {
            blocks_(state_, rest_.data(), 1);
        }
    }
}

Digest Sha256::digest() {
    const std::uint64_t bits = 8 * size_;
    const std::uint8_t one = 0x80;
    add(&one, 1);
    const std::uint8_t zeros[64] = {};
    add(zeros, (120 - size_ % 64) % 64);
    std::uint8_t length[8];
    for (int at = 0; at < 8; ++at) {
        length[at] = static_cast<std::uint8_t>(bits >> (56 - 8 * at));
    }
    add(length, sizeof length);
    Digest result{};
    for (std::size_t at = 0; at < result.size(); ++at) {
        result[at] = static_cast<std::uint8_t>(state_[at / 4] >> (24 - 8 * (at % 4)));
    }
    return result;
}

Digest sha256(const void* data, std::size_t size) {
    Sha256 state;
    state.add(data, size);
    return state.digest();
}

std::string text_of(const Digest& digest) { return hexadecimal(digest.data(), digest.size()); }

}  // namespace atlasc
