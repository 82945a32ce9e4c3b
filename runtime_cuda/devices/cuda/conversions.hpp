// First passes of transforms of residues modulo a block of primes, which they convert to other primes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "devices/cuda/vectors.hpp"

namespace atlasc::ckks {

/// A sum of residues y times factors, less u times a factor, modulo a prime of at most 60 bits.
struct SumInIntegers {
    using Factor = Word;
    static constexpr std::uint32_t together = 1;  ///< elements, so that their sums stay in registers
    static constexpr std::uint32_t most = most_in_block;  ///< terms, before `fold`

    Wide sum = 0;

    static ATLASC_DEVICE double number(Word y) { return static_cast<double>(y); }
    static ATLASC_DEVICE const Factor* factors(const BlockConstants& block, std::size_t prime) {
        return block.hats + prime;
    }
    static ATLASC_DEVICE std::size_t row(std::size_t all) { return all; }
    ATLASC_DEVICE void add(Word y, double, Factor factor) {
        sum += static_cast<Wide>(y) * factor;
    }
    ATLASC_DEVICE void fold(const Modulus&) {}
    /// A number of a pass.
    ATLASC_DEVICE Word result(double u, Factor minus, const Prime& q,
                              const Modulus& modulus) const {
        const Word word = reduce(sum + static_cast<Wide>(static_cast<Word>(u)) * minus, q);
        return modulus.in_doubles ? modulus.doubles.number(word) : word;
    }
};

/// The same modulo a prime q < 2^50, of residues y < 2^50 and factors f within q/2 of 0. The sum is
/// high - base + low, exactly, where base = 1.5 2^103:
///
///   An FMA adds y f to high, rounded to a multiple of 2^51, since eight products are less than 2^102
///   and high stays between 2^103 and 2^104. What it grew by, d, is exact. So is y f - d by another
///   FMA: at most 2^50. Eight of these, or seven and a number of at most (q + 1)/2, are integers of
///   at most 2^53.
///   H = high - base is at most 2^52 q and what was rounded. k is H times the double 1/q, rounded to
///   an even number as `Doubles::nearest` does, or to a multiple of 4 where it is 2^52 or more; it is
///   within 5/2 of H/q. r = fma(-k, q, H) is H - k q exactly: at most 5/2 q.
///   With `settled` low, and u <= 10 times a factor, r is at most 8q, which is less than 2^53.
struct SumInDoubles {
    using Factor = double;
    static constexpr std::uint32_t together = 2;
    static constexpr std::uint32_t most = 8;
    static constexpr double base = 0x1.8p103;

    double high = base;
    double low = 0;

    static ATLASC_DEVICE double number(Word y) { return Doubles::of_word(y); }
    static ATLASC_DEVICE const Factor* factors(const BlockConstants& block, std::size_t prime) {
        return block.balanced + prime * BlockConstants::rows;
    }
    static ATLASC_DEVICE std::size_t row(std::size_t) { return 1; }
    ATLASC_DEVICE void add(Word, double y, Factor factor) {
        const double before = high;
        high = std::fma(y, factor, before);
        low += std::fma(y, factor, before - high);
    }
    /// Of at most 3q.
    ATLASC_DEVICE double rest(const Doubles& q) const {
        constexpr double even = 0x1.8p53;
        const double whole = high - base;
        const double multiple = std::fma(whole, q.inverse, even) - even;
        return std::fma(-multiple, q.q, whole) + q.settled(low);
    }
    ATLASC_DEVICE void fold(const Modulus& modulus) {
        low = modulus.doubles.settled(rest(modulus.doubles));
        high = base;
    }
    ATLASC_DEVICE Word result(double u, Factor minus, const Prime&, const Modulus& modulus) const {
        return Doubles::to_bits(
            modulus.doubles.settled(std::fma(u, minus, rest(modulus.doubles))));
    }
};

/// Numbers that lie in a block's memory, as `number` makes them.
struct HeldVectors : ResidueVectors<true> {
    static constexpr bool held = true;
};

/// x = sum of y_s B/b_s - u B modulo other primes (`BlockConstants`), and the first stages. A block of
/// threads does it for a few limbs at once, and so reads residues and finds u for all of them.
template <std::uint32_t at_once>
struct Conversions {
    using Columns = Stages<HeldVectors, true, Parts::columns>;
    using Number = Word;
    using Count = std::uint32_t;
    static constexpr Count in_block = Columns::in_block;  ///< numbers of a limb
    static constexpr unsigned threads = Columns::threads;
    static constexpr unsigned resident = Columns::resident;
    static constexpr std::size_t shared = at_once * in_block;

    Columns columns;
    ResidueVectors<true> field;

    explicit Conversions(const ResidueVectors<true>& field)
        : columns{field.log_degree}, field(field) {}

    ATLASC_DEVICE Count groups() const {
        return (static_cast<Count>(field.limbs.count) + at_once - 1) / at_once;
    }
    std::size_t blocks() const {
        return field.limbs.polynomials * groups() << log_blocks();
    }
    ATLASC_DEVICE int phases() const { return 1 + static_cast<int>(at_once) * columns.steps(); }

    /// The limbs of the same residues follow one another: caches hold these.
    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, Count block, Count thread,
                                  const Memory& memory) const {
        const Count number = block / groups();
        const Count first = block % groups() * at_once;
        const Work work{number >> log_blocks(),
                        (number & ((1U << log_blocks()) - 1)) << log_wide(), first};
        if (phase != 0) {
            const auto one = static_cast<Count>((phase - 1) / columns.steps());
            if (active(work, one)) {
                transform(work, one, (phase - 1) % columns.steps(), thread, memory);
            }
            return;
        }
        bool any = false;
        bool doubles = field.limbs.blocks[work.polynomial].balanced != nullptr;
        for (Count one = 0; one < at_once; ++one) {
            if (active(work, one)) {
                any = true;
                doubles = doubles && field.moduli[prime(work, one)].in_doubles;
            }
        }
        if (any) {
            doubles ? convert<SumInDoubles>(work, thread, memory)
                    : convert<SumInIntegers>(work, thread, memory);
        }
    }

private:
    struct Work {
        Count polynomial;
        Count column;  ///< first one
        Count limb;    ///< first one
    };

    /// The memory of a limb.
    template <typename Memory>
    struct Own {
        const Memory& memory;
        Count start;

        ATLASC_DEVICE Word get(Count at) const { return memory.get(start + at); }
        ATLASC_DEVICE void set(Count at, Word x) const { memory.set(start + at, x); }
    };

    ATLASC_DEVICE int log_blocks() const { return columns.log_size - columns.log_in_block; }
    ATLASC_DEVICE int log_wide() const { return columns.log_in_block - columns.stages(); }

    ATLASC_DEVICE bool active(const Work& work, Count one) const {
        const std::size_t limb = work.limb + one;
        return limb < field.limbs.count && !field.limbs.skips(work.polynomial, limb);
    }
    /// Of a limb, or else of the one before.
    ATLASC_DEVICE std::size_t prime(const Work& work, Count one) const {
        const std::size_t limb = work.limb + one;
        return field.limbs.prime(limb < field.limbs.count ? limb : limb - one, field.size_q);
    }

    template <typename Sum, typename Memory>
    ATLASC_DEVICE void convert(const Work& work, Count thread, const Memory& memory) const {
        const BlockConstants& block = field.limbs.blocks[work.polynomial];
        const std::size_t degree = std::size_t{1} << columns.log_size;
        const std::size_t row = Sum::row(field.all);
        const auto size = static_cast<Count>(block.size);
        Count primes[at_once];
        for (Count one = 0; one < at_once; ++one) {
            primes[one] = static_cast<Count>(prime(work, one));
        }
        // A thread's numbers: blocks are as wide as a power of two that divides their threads.
        const int log_apart = columns.log_size - columns.stages();
        const Count apart = threads >> log_wide() << log_apart;
        const Word* in = field.limbs.in[work.polynomial] + work.column +
                         (thread >> log_wide() << log_apart) +
                         (thread & ((1U << log_wide()) - 1));
        for (Count begin = 0; begin < 8; begin += Sum::together, in += Sum::together * apart) {
            Sum sums[at_once][Sum::together] = {};
            double quotients[Sum::together] = {};
            const Word* residues = in;
            const double* share = block.shares;
            const typename Sum::Factor* factors[at_once];
            for (Count one = 0; one < at_once; ++one) {
                factors[one] = Sum::factors(block, primes[one]);
            }
            for (Count s = 0; s < size;) {
                for (Count one = 0; s != 0 && one < at_once; ++one) {
                    const Modulus& modulus = field.moduli[primes[one]];
                    for (Count e = 0; e < Sum::together; ++e) {
                        sums[one][e].fold(modulus);
                    }
                }
                const Count most = s == 0 ? Sum::most : Sum::most - 1;
                const Count end = size - s < most ? size : s + most;
                for (; s < end; ++s, residues += degree) {
                    Word y[Sum::together];
                    double numbers[Sum::together];
                    for (Count e = 0; e < Sum::together; ++e) {
                        y[e] = residues[e * apart];
                        numbers[e] = Sum::number(y[e]);
                        quotients[e] = std::fma(numbers[e], *share, quotients[e]);
                    }
                    ++share;
                    for (Count one = 0; one < at_once; ++one) {
                        const typename Sum::Factor factor = *factors[one];
                        factors[one] += row;
                        for (Count e = 0; e < Sum::together; ++e) {
                            sums[one][e].add(y[e], numbers[e], factor);
                        }
                    }
                }
            }
            for (Count one = 0; one < at_once; ++one) {
                if (!active(work, one)) {
                    continue;
                }
                const Count of = primes[one];
                const typename Sum::Factor minus =
                    Sum::factors(block, of)[most_in_block * row];
                for (Count e = 0; e < Sum::together; ++e) {
                    memory.set(one * in_block + (begin + e) * threads + thread,
                               sums[one][e].result(Doubles::nearest(quotients[e], 1.0), minus,
                                                   field.primes[of], field.moduli[of]));
                }
            }
        }
    }

    template <typename Memory>
    ATLASC_DEVICE void transform(const Work& work, Count one, int step, Count thread,
                                 const Memory& memory) const {
        const Count own = thread & ((1U << log_wide()) - 1);
        const std::size_t of = prime(work, one);
        HeldVectors::Limb vector{};
        vector.out = field.limbs.out[work.polynomial] +
                     (static_cast<std::size_t>(work.limb + one) << columns.log_size);
        vector.modulus = field.moduli + of;
        vector.nodes = field.nodes + (of << columns.log_size);
        columns.butterflies(vector, work.column + own, own, thread >> log_wide(), step,
                            Own<Memory>{memory, one * in_block});
    }
};

}  // namespace atlasc::ckks
