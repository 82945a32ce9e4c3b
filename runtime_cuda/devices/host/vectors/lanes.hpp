// What the fast kernels do to a row of residues modulo one prime below 2^50, several numbers at
// once: for processors that are not Cpu::portable. Lengths are multiples of 8. The functions have
// no body here: `vector_kernels().add(...)` calls that of the processor's instruction set.
#pragma once

#include <cstddef>

#include "ckks/keys/sampling.hpp"
#include "ckks/ring/arithmetic.hpp"
#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks::lanes {

void add(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q);
void subtract(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q);

void multiply(Word* out, const Word* a, const PlainValues& b, std::size_t length, const Prime& q);

void plus_number(Word* out, const Word* a, Word number, std::size_t length, const Prime& q);

/// The three parts of (a0 + a1 s)(b0 + b1 s), added to `d` unless `first`.
void add_product(Word* const (&d)[3], const Word* const (&a)[2], const Word* const (&b)[2],
                 std::size_t length, bool first, const Prime& q);

/// (values - minuend) factor.
void divide(Word* out, const Word* values, const Word* minuend, Word factor, std::size_t length,
            const Prime& q);

/// Numbers modulo another prime below 2^50, centred.
void lift(Word* out, const Word* in, std::size_t length, const Prime& from, const Prime& to);

/// Numbers that are added, unless null, times a factor.
struct Addends {
    const Word* first;
    const Word* second;
    Word factor;
};

/// Packed residues of a key from a place on, a multiple of 8. Digits from `gap` on are the key's that
/// come `gaps` later.
struct Packed {
    const Word* words;
    std::size_t bits;
    std::size_t first;
    std::size_t gap = 0;
    std::size_t gaps = 0;
};

/// The sums over digits of x times both parts of a key, and addends: digit d is at
/// x + d * digit_stride, its parts 2 k key_stride words behind the key's first and one key_stride
/// further, for the key's digit k.
void inner_product(Word* b, Word* a, const Word* x, std::size_t digit_stride, const Packed& key,
                   std::size_t key_stride, std::size_t digits, const Addends& addends,
                   std::size_t length, const Prime& q);

/// out = in, in the order that `from` lists unless it is null; added to `out` with `accumulate`.
/// Eight aligned numbers come from eight aligned numbers. `start`: the place of in[0].
void permute(Word* out, const Word* in, const std::uint32_t* from, std::size_t start,
             bool accumulate, std::size_t length, const Prime& q);

struct Term {
    const Word* x;
    PlainValues plain;
};

/// The sum of x * plain over terms; added to `out` with `accumulate`.
void sum_of_products(Word* out, const Term* terms, std::size_t count, bool accumulate,
                     std::size_t length, const Prime& q);

/// out[m][first + at] = the sum over k < `count` of factors[k rows + m] x[k apart + at], for m < `rows`,
/// a multiple of 4, and at < `length`, a multiple of 16. `count` is even, and pairs[m] the sum of
/// factors[k rows + m] factors[(k + 1) rows + m] over even k.
void matrix_product(Word* const* out, std::size_t first, const Word* x, std::size_t apart,
                    std::size_t count, const Word* factors, const Word* pairs, std::size_t rows,
                    std::size_t length, const Prime& q);

/// y = x inverse modulo q, and sum + y / q.
void scale(Word* y, double* sum, const Word* x, Word inverse, std::size_t length, const Prime& q);

/// Sum over s of y_s hats[s stride], plus u minus; y_s is at y + s `row`.
void combine(Word* out, const Word* y, std::size_t row, std::size_t size, const Word* hats,
             std::size_t stride, const Word* u, Word minus, std::size_t length, const Prime& q);

/// Integers of less than 2^52, as doubles, modulo a prime.
void residues(Word* out, const double* integers, std::size_t length, const Prime& q);

/// Sixteen blocks of ChaCha20, whose counters are `step` apart: [word][block].
void chacha20(std::uint32_t (&words)[16][16], const Seed& seed, std::uint32_t counter,
              std::uint32_t step, const std::uint32_t (&nonce)[3]);

}  // namespace atlasc::ckks::lanes
