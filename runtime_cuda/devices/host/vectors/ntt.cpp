#include "devices/host/vectors/ntt.hpp"

#include <cstring>

namespace atlasc::ckks {
namespace {

/// x root modulo q, below 2q, for any x.
inline Word lazy(Word x, Word root, Word quotient, Word q) {
    const Word high = static_cast<Word>((static_cast<Wide>(x) * quotient) >> 64);
    return x * root - high * q;
}

inline Word below(Word x, Word bound) { return x >= bound ? x - bound : x; }

}  // namespace

Factor factor_of(Word w, Word q, Cpu cpu) {
    if (cpu == Cpu::avx2) {
        const double value = w > q / 2 ? -static_cast<double>(q - w) : static_cast<double>(w);
        const double parts[2] = {value, value / static_cast<double>(q)};
        Factor factor{};
        std::memcpy(&factor, parts, sizeof factor);
        return factor;
    }
    return {w, static_cast<Word>((static_cast<Wide>(w) << (cpu == Cpu::ifma ? 52 : 64)) / q)};
}

void forward_portable(Word* a, const NttTable& table, int log_degree) {
    const Word q = table.q;
    const std::size_t degree = std::size_t{1} << log_degree;
    std::size_t half = degree / 2;
    for (std::size_t blocks = 1; blocks < degree; blocks *= 2, half /= 2) {
        for (std::size_t block = 0; block < blocks; ++block) {
            const Word root = table.forward.values[blocks + block];
            const Word quotient = table.forward.quotients[blocks + block];
            Word* top = a + 2 * block * half;
            Word* bottom = top + half;
            for (std::size_t at = 0; at < half; ++at) {  // numbers below 4q
                const Word u = below(top[at], 2 * q);
                const Word v = lazy(bottom[at], root, quotient, q);
                top[at] = u + v;
                bottom[at] = u - v + 2 * q;
            }
        }
    }
    for (std::size_t at = 0; at < degree; ++at) {
        a[at] = below(below(a[at], 2 * q), q);
    }
}

void backward_portable(Word* a, const Word* in, const NttTable& table) {
    const Word q = table.q;
    const std::size_t degree = std::size_t{1} << table.log_degree;
    if (a != in) {
        std::memcpy(a, in, degree * sizeof(Word));
    }
    std::size_t half = 1;
    for (std::size_t blocks = degree / 2; blocks > 1; blocks /= 2, half *= 2) {
        for (std::size_t block = 0; block < blocks; ++block) {
            const Word root = table.backward.values[blocks + block];
            const Word quotient = table.backward.quotients[blocks + block];
            Word* top = a + 2 * block * half;
            Word* bottom = top + half;
            for (std::size_t at = 0; at < half; ++at) {  // numbers below 2q
                const Word u = top[at];
                const Word v = bottom[at];
                top[at] = below(u + v, 2 * q);
                bottom[at] = lazy(u - v + 2 * q, root, quotient, q);
            }
        }
    }
    for (std::size_t at = 0; at < half; ++at) {
        const Word u = a[at];
        const Word v = a[at + half];
        a[at] = below(lazy(u + v, table.scale.value, table.scale.quotient, q), q);
        a[at + half] = below(lazy(u - v + 2 * q, table.last.value, table.last.quotient, q), q);
    }
}

}  // namespace atlasc::ckks
