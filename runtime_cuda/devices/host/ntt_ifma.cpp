// Transforms with products of 52 bits, eight at once (AVX-512 IFMA).
#include "devices/host/ntt.hpp"

#include <algorithm>

// GCC 12 takes the undefined operands of its own intrinsics for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512ifma")
#include "devices/host/ifma.hpp"

namespace atlasc::ckks {
namespace {

inline Root same(const Roots& roots, std::size_t at) {
    return {all(roots.values[at]), all(roots.quotients[at])};
}

/// Cooley and Tukey's: numbers below 4q stay so.
inline void forward_butterfly(Vector& top, Vector& bottom, const Root& root, const Modulus& m) {
    const Vector u = below(top, m.twice);
    const Vector v = lazy(bottom, root, m);
    top = _mm512_add_epi64(u, v);
    bottom = _mm512_add_epi64(_mm512_sub_epi64(u, v), m.twice);
}

/// Gentleman and Sande's: numbers below 2q stay so.
inline void backward_butterfly(Vector& top, Vector& bottom, const Root& root, const Modulus& m) {
    const Vector sum = _mm512_add_epi64(top, bottom);
    const Vector difference = _mm512_add_epi64(_mm512_sub_epi64(top, bottom), m.twice);
    top = below(sum, m.twice);
    bottom = lazy(difference, root, m);
}

/// So many numbers stay in the nearest cache from one stage to the next.
constexpr std::size_t near = 2048;

/// The two vectors that a permutation makes of two others: number at, of sixteen, is number
/// from(at).
struct Shuffle {
    Vector first;
    Vector second;

    template <typename From>
    explicit Shuffle(const From& from) {
        alignas(64) long long lanes[16];
        for (int at = 0; at < 16; ++at) {
            lanes[at] = from(at);
        }
        first = _mm512_load_si512(lanes);
        second = _mm512_load_si512(lanes + 8);
    }

    void operator()(Vector& one, Vector& other) const {
        const Vector x = _mm512_permutex2var_epi64(one, first, other);
        other = _mm512_permutex2var_epi64(one, second, other);
        one = x;
    }
};

/// Where sixteen numbers lie when blocks of two halves have all their tops in the first vector: the
/// place of number `at`.
constexpr int split(int at, int half) {
    const int bottom = at / half % 2;
    return at / (2 * half) * half + at % half + 8 * bottom;
}

/// The number at a place.
constexpr int joined(int place, int half) {
    const int at = place % 8;
    return at / half * 2 * half + at % half + (place < 8 ? 0 : half);
}

/// From the order for blocks of one half to that for blocks of another; a half of 8 is no change.
inline Shuffle between(int from, int to) {
    return Shuffle([=](int place) { return split(joined(place, to), from); });
}

/// Eight roots for blocks of `half`: each is that of so many neighbouring lanes.
struct Spread {
    explicit Spread(int half) : mask(static_cast<__mmask8>((1U << (8 / half)) - 1)) {
        alignas(64) long long lanes[8];
        for (int lane = 0; lane < 8; ++lane) {
            lanes[lane] = lane / half;
        }
        from = _mm512_load_si512(lanes);
    }

    Root operator()(const Roots& roots, std::size_t at) const {
        return {spread(&roots.values[at]), spread(&roots.quotients[at])};
    }

    Vector spread(const Word* words) const {
        return _mm512_permutexvar_epi64(from, _mm512_maskz_loadu_epi64(mask, words));
    }

    __mmask8 mask;
    Vector from;
};

/// Two stages at once, of halves and then of quarters, for blocks from `begin` on.
inline void forward_two(Word* a, const Roots& roots, std::size_t blocks, std::size_t half,
                        std::size_t begin, std::size_t end, const Modulus& m) {
    const std::size_t quarter = half / 2;
    for (std::size_t block = begin; block < end; ++block) {
        const Root first = same(roots, blocks + block);
        const Root left = same(roots, 2 * (blocks + block));
        const Root right = same(roots, 2 * (blocks + block) + 1);
        Word* start = a + 2 * block * half;
        for (std::size_t at = 0; at < quarter; at += 8) {
            Word* place = start + at;
            Vector x0 = load(place);
            Vector x1 = load(place + quarter);
            Vector x2 = load(place + 2 * quarter);
            Vector x3 = load(place + 3 * quarter);
            forward_butterfly(x0, x2, first, m);
            forward_butterfly(x1, x3, first, m);
            forward_butterfly(x0, x1, left, m);
            forward_butterfly(x2, x3, right, m);
            store(place, x0);
            store(place + quarter, x1);
            store(place + 2 * quarter, x2);
            store(place + 3 * quarter, x3);
        }
    }
}

/// Two stages at once, of blocks of 2 and then of 4 halves.
inline void backward_two(Word* a, const Roots& roots, std::size_t degree, std::size_t half,
                         std::size_t begin, std::size_t end, const Modulus& m) {
    const std::size_t blocks = degree / (4 * half);
    for (std::size_t block = begin; block < end; ++block) {
        const Root last = same(roots, blocks + block);
        const Root left = same(roots, 2 * (blocks + block));
        const Root right = same(roots, 2 * (blocks + block) + 1);
        Word* start = a + 4 * block * half;
        for (std::size_t at = 0; at < half; at += 8) {
            Word* place = start + at;
            Vector x0 = load(place);
            Vector x1 = load(place + half);
            Vector x2 = load(place + 2 * half);
            Vector x3 = load(place + 3 * half);
            backward_butterfly(x0, x1, left, m);
            backward_butterfly(x2, x3, right, m);
            backward_butterfly(x0, x2, last, m);
            backward_butterfly(x1, x3, last, m);
            store(place, x0);
            store(place + half, x1);
            store(place + 2 * half, x2);
            store(place + 3 * half, x3);
        }
    }
}

}  // namespace

void forward_ifma(Word* a, const NttTable& table) {
    const Modulus m(table.q);
    const Roots& roots = table.forward;
    const std::size_t degree = std::size_t{1} << table.log_degree;
    std::size_t blocks = 1;
    std::size_t half = degree / 2;
    if ((table.log_degree - 4) % 2 != 0) {  // one stage, so that pairs of stages are left
        const Root root = same(roots, 1);
        for (std::size_t at = 0; at < half; at += 8) {
            Vector top = load(a + at);
            Vector bottom = load(a + at + half);
            forward_butterfly(top, bottom, root, m);
            store(a + at, top);
            store(a + at + half, bottom);
        }
        blocks = 2;
        half /= 2;
    }
    for (; 2 * half > near; blocks *= 4, half /= 4) {
        forward_two(a, roots, blocks, half, 0, blocks, m);
    }
    const Shuffle to_four = between(8, 4);
    const Shuffle to_two = between(4, 2);
    const Shuffle to_one = between(2, 1);
    const Shuffle back = between(1, 8);
    const Spread four(4);
    const Spread two(2);
    const Spread one(1);
    // All that is left, for one block after another.
    for (std::size_t part = 0; part < blocks; ++part) {
        std::size_t inner = 1;
        for (std::size_t size = half; size > 8; inner *= 4, size /= 4) {
            forward_two(a, roots, blocks * inner, size, part * inner, (part + 1) * inner, m);
        }
        // Four stages of 16 numbers each: halves of 8, 4, 2, 1.
        for (std::size_t block = part * inner; block < (part + 1) * inner; ++block) {
            Word* start = a + 16 * block;
            Vector x = load(start);
            Vector y = load(start + 8);
            forward_butterfly(x, y, same(roots, degree / 16 + block), m);
            to_four(x, y);
            forward_butterfly(x, y, four(roots, degree / 8 + 2 * block), m);
            to_two(x, y);
            forward_butterfly(x, y, two(roots, degree / 4 + 4 * block), m);
            to_one(x, y);
            forward_butterfly(x, y, one(roots, degree / 2 + 8 * block), m);
            back(x, y);
            store(start, below(below(x, m.twice), m.q));
            store(start + 8, below(below(y, m.twice), m.q));
        }
    }
}

void backward_ifma(Word* a, const NttTable& table) {
    const Modulus m(table.q);
    const Roots& roots = table.backward;
    const std::size_t degree = std::size_t{1} << table.log_degree;
    const Shuffle to_one = between(8, 1);
    const Shuffle to_two = between(1, 2);
    const Shuffle to_four = between(2, 4);
    const Shuffle back = between(4, 8);
    const Spread four(4);
    const Spread two(2);
    const Spread one(1);
    std::size_t half = 16;  // of the next stage
    const std::size_t part = std::min(near, degree / 4);
    // What lies near, for one part after another.
    for (std::size_t start = 0; start < degree; start += part) {
        for (std::size_t block = start / 16; block < (start + part) / 16; ++block) {
            Word* place = a + 16 * block;
            Vector x = load(place);
            Vector y = load(place + 8);
            to_one(x, y);
            backward_butterfly(x, y, one(roots, degree / 2 + 8 * block), m);
            to_two(x, y);
            backward_butterfly(x, y, two(roots, degree / 4 + 4 * block), m);
            to_four(x, y);
            backward_butterfly(x, y, four(roots, degree / 8 + 2 * block), m);
            back(x, y);
            backward_butterfly(x, y, same(roots, degree / 16 + block), m);
            store(place, x);
            store(place + 8, y);
        }
        for (half = 16; 4 * half <= part; half *= 4) {
            backward_two(a, roots, degree, half, start / (4 * half), (start + part) / (4 * half), m);
        }
    }
    for (; 4 * half < degree; half *= 4) {  // the last pair scales
        backward_two(a, roots, degree, half, 0, degree / (4 * half), m);
    }
    const Root scale{all(table.scale), all(table.scale_quotient)};
    const Root scaled{all(table.last), all(table.last_quotient)};
    const auto finish = [&](Vector& top, Vector& bottom) {
        const Vector sum = _mm512_add_epi64(top, bottom);
        const Vector difference = _mm512_add_epi64(_mm512_sub_epi64(top, bottom), m.twice);
        top = below(lazy(sum, scale, m), m.q);
        bottom = below(lazy(difference, scaled, m), m.q);
    };
    if (4 * half == degree) {
        const Root left = same(roots, 2);
        const Root right = same(roots, 3);
        for (std::size_t at = 0; at < half; at += 8) {
            Word* place = a + at;
            Vector x0 = load(place);
            Vector x1 = load(place + half);
            Vector x2 = load(place + 2 * half);
            Vector x3 = load(place + 3 * half);
            backward_butterfly(x0, x1, left, m);
            backward_butterfly(x2, x3, right, m);
            finish(x0, x2);
            finish(x1, x3);
            store(place, x0);
            store(place + half, x1);
            store(place + 2 * half, x2);
            store(place + 3 * half, x3);
        }
    } else {
        for (std::size_t at = 0; at < half; at += 8) {
            Vector top = load(a + at);
            Vector bottom = load(a + at + half);
            finish(top, bottom);
            store(a + at, top);
            store(a + at + half, bottom);
        }
    }
}

}  // namespace atlasc::ckks
#pragma GCC pop_options
#pragma GCC diagnostic pop
