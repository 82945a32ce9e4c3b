// Ciphertexts as polynomials: what is done to every residue by itself.
#pragma once

#include <memory>
#include <vector>

#include "ckks/ring/ring.hpp"

namespace atlasc::ckks {

/// Values of a plaintext polynomial, one for each run of 2^log_run neighbours. Those that a ring takes
/// from one with more primes (`Chain::Gap`) lie `gap` places further, from place `from` on.
struct PlainValues {
    const Word* words;
    int log_run;
    std::size_t from = ~std::size_t{0};
    std::size_t gap = 0;

    /// The word of a place; null where there are none.
    ATLASC_DEVICE const Word* word(std::size_t at) const {
        const std::size_t number = (at < from ? at : at + gap) >> log_run;
        return words == nullptr ? nullptr : words + number;
    }
    ATLASC_DEVICE Word operator[](std::size_t at) const { return *word(at); }
};

/// Values of a few polynomials of the same primes: [part][limb][N]. A ciphertext c of 2 or 3 parts
/// holds c[0] + c[1] s + c[2] s^2, for the secret s.
struct Polys {
    Polys(const Ring& ring, std::size_t parts, std::size_t limbs)
        : parts(parts),
          limbs(limbs),
          degree(ring.degree()),
          words(ring.polynomial(parts * limbs)) {}

    Word* part(std::size_t number) const { return words.get() + number * limbs * degree; }

    std::size_t parts;
    std::size_t limbs;
    std::size_t degree;
    Words words;
};

/// Both parts of a ciphertext, for limbs of Q and maybe special ones, times a number for each limb:
/// what is added to a key switch. `second` may be null, and so may `factors`, which are 1 then.
struct Addends {
    const Word* first;
    const Word* second;
    std::size_t limbs;
    const Word* factors;
};

/// Residues of one number modulo each prime of Q.
struct Residues {
    Word of[most_primes] = {};
};

/// A number that is rounded to an integer, modulo the first primes of Q.
Residues residues(const Ring& ring, double number, std::size_t limbs);

/// A ciphertext that is not computed yet: the sum of products of ciphertexts, of ciphertexts times
/// numbers, and of a number.
struct Combination {
    using Operand = std::shared_ptr<const Polys>;
    /// Sums of unreduced products fit into two words.
    static constexpr Word most_times = 4;

    /// Of two parts each.
    struct Product {
        Operand a;
        Operand b;
    };
    struct Term {
        Operand x;
        Residues number;
    };

    std::size_t limbs;  ///< all operands have as many, or more
    std::vector<Product> products{};
    Word times = 1;  ///< the products
    std::vector<Term> terms{};
    Residues constant{};

    std::size_t parts() const;
    /// Whether its operands may be kept until somebody needs it: many take much memory.
    bool is_short() const { return products.size() <= 8 && terms.size() <= 32; }
    /// Whether it can become the sum with another one.
    bool takes(const Combination& other) const;
    void add(const Ring& ring, const Combination& other);
    /// Whether it can become twice itself.
    bool doubles() const { return 2 * times <= most_times; }
    void twice(const Ring& ring);
};

/// New ciphertexts, of sums with the same limbs: one kernel for as many as have few operands.
std::vector<Polys> computed(const Ring& ring, const std::vector<Combination>& sums);
Polys computed(const Ring& ring, const Combination& sum);

// Each makes a new ciphertext of the first `limbs` primes of its operands, which have as many.

/// Every part times a plaintext, which has at least `limbs` primes.
Polys product(const Ring& ring, const Polys& a, const PlainValues& plain, std::size_t limbs);

/// The plaintext added to part 0.
Polys shifted(const Ring& ring, const Polys& a, const PlainValues& plain, std::size_t limbs);

/// Two parts of polynomials that have `stored` limbs each, and a plaintext to multiply them by.
struct PlainTerm {
    const Word* x;
    std::size_t stored;
    PlainValues plain;
};

/// The sum of the terms, one or more: [part][limb][N] of the first `limbs` primes of Q and of `special`
/// ones. Added to `out` with `accumulate`.
void add_products(const Ring& ring, const std::vector<PlainTerm>& terms, std::size_t limbs,
                  std::size_t special, bool accumulate, Word* out);

/// Ciphertexts of the primes of a level or more, divided by the level's own and rounded (rescaling).
std::vector<Polys> rescaled(const Ring& ring, const std::vector<const Polys*>& xs, int level);

/// Coefficients of `remainders` become values, and their quotients (dividends - values) times the
/// inverse: of the divisor, modulo the primes of the limbs.
void subtract_and_divide(const Ring& ring, Limbs& remainders, const Word* inverse);

/// Polynomials that are their first limbs and, behind them, those of a divisor: divided, and rounded.
/// The latter may have `begun` their transforms backwards.
void divide(const Ring& ring, const Divisor& divisor, const std::vector<const Word*>& polynomials,
            std::size_t limbs, const std::vector<Word*>& out, bool begun = false);

/// The inverse of an odd number modulo 2N: X -> X^galois and back.
std::uint32_t inverse_galois(const Ring& ring, std::uint32_t galois);

/// Coefficients modulo one prime, centred, modulo `count` primes from `first` on: [count][N].
void lift_coefficients(const Ring& ring, const Word* coefficients, std::size_t from, Word* out,
                       std::size_t first, std::size_t count);

}  // namespace atlasc::ckks
