// Transforms with products of 52 bits, eight at once (AVX-512 IFMA).
#include "devices/host/ntt.hpp"

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

/// Sixteen numbers as blocks of 2 halves: the lanes of both vectors that are tops, and bottoms, and
/// the way back.
struct Lanes {
    Vector tops;
    Vector bottoms;
    Vector first;
    Vector second;
};

inline Lanes lanes_of(int half) {
    alignas(64) long long tops[8];
    alignas(64) long long bottoms[8];
    alignas(64) long long first[8];
    alignas(64) long long second[8];
    for (int at = 0; at < 8; ++at) {
        tops[at] = at / half * 2 * half + at % half;
        bottoms[at] = tops[at] + half;
    }
    for (int at = 0; at < 16; ++at) {  // number `at` came from this lane of tops (0..7), bottoms
        const int lane = at / (2 * half) * half + at % half + (at / half % 2 != 0 ? 8 : 0);
        (at < 8 ? first[at] : second[at - 8]) = lane;
    }
    return {_mm512_load_si512(tops), _mm512_load_si512(bottoms), _mm512_load_si512(first),
            _mm512_load_si512(second)};
}

/// Eight roots for blocks of `half`: each is that of so many neighbouring lanes.
inline Root spread(const Roots& roots, std::size_t at, int half) {
    alignas(64) long long lanes[8];
    for (int lane = 0; lane < 8; ++lane) {
        lanes[lane] = lane / half;
    }
    const Vector from = _mm512_load_si512(lanes);
    const auto read = [&](const Word* words) {
        const auto mask = static_cast<__mmask8>((1U << (8 / half)) - 1);
        return _mm512_permutexvar_epi64(from, _mm512_maskz_loadu_epi64(mask, words));
    };
    return {read(&roots.values[at]), read(&roots.quotients[at])};
}

inline void split(Vector& one, Vector& other, const Lanes& lanes) {
    const Vector top = _mm512_permutex2var_epi64(one, lanes.tops, other);
    other = _mm512_permutex2var_epi64(one, lanes.bottoms, other);
    one = top;
}

inline void join(Vector& one, Vector& other, const Lanes& lanes) {
    const Vector first = _mm512_permutex2var_epi64(one, lanes.first, other);
    other = _mm512_permutex2var_epi64(one, lanes.second, other);
    one = first;
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
    for (; half > 8; blocks *= 4, half /= 4) {  // two stages at once: halves, then quarters
        const std::size_t quarter = half / 2;
        for (std::size_t block = 0; block < blocks; ++block) {
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
    // Four stages of 16 numbers each: halves of 8, 4, 2, 1.
    const Lanes four = lanes_of(4);
    const Lanes two = lanes_of(2);
    const Lanes one = lanes_of(1);
    for (std::size_t block = 0; block < degree / 16; ++block) {
        Word* start = a + 16 * block;
        Vector x = load(start);
        Vector y = load(start + 8);
        forward_butterfly(x, y, same(roots, degree / 16 + block), m);
        split(x, y, four);
        forward_butterfly(x, y, spread(roots, degree / 8 + 2 * block, 4), m);
        join(x, y, four);
        split(x, y, two);
        forward_butterfly(x, y, spread(roots, degree / 4 + 4 * block, 2), m);
        join(x, y, two);
        split(x, y, one);
        forward_butterfly(x, y, spread(roots, degree / 2 + 8 * block, 1), m);
        join(x, y, one);
        store(start, below(below(x, m.twice), m.q));
        store(start + 8, below(below(y, m.twice), m.q));
    }
}

void backward_ifma(Word* a, const NttTable& table) {
    const Modulus m(table.q);
    const Roots& roots = table.backward;
    const std::size_t degree = std::size_t{1} << table.log_degree;
    const Lanes four = lanes_of(4);
    const Lanes two = lanes_of(2);
    const Lanes one = lanes_of(1);
    for (std::size_t block = 0; block < degree / 16; ++block) {
        Word* start = a + 16 * block;
        Vector x = load(start);
        Vector y = load(start + 8);
        split(x, y, one);
        backward_butterfly(x, y, spread(roots, degree / 2 + 8 * block, 1), m);
        join(x, y, one);
        split(x, y, two);
        backward_butterfly(x, y, spread(roots, degree / 4 + 4 * block, 2), m);
        join(x, y, two);
        split(x, y, four);
        backward_butterfly(x, y, spread(roots, degree / 8 + 2 * block, 4), m);
        join(x, y, four);
        backward_butterfly(x, y, same(roots, degree / 16 + block), m);
        store(start, x);
        store(start + 8, y);
    }
    std::size_t half = 16;  // of the next stage
    for (; 4 * half < degree; half *= 4) {  // two stages at once; the last pair scales
        const std::size_t blocks = degree / (4 * half);
        for (std::size_t block = 0; block < blocks; ++block) {
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
