// Switching a ciphertext from one secret to another, with keys that reach a level and no further.
//
// Hybrid key switching (Han and Ki 2020): a polynomial is cut into digits, each of no more bits
// than P, the product of the special primes; a digit times the key's part for it, summed, is divided
// by P. Digits are exact and centred. Rotations of one ciphertext share its digits (hoisting: Halevi
// and Shoup 2018): a key takes s to the secret that the rotation turns into s, and the result is
// permuted once, not each digit.
#pragma once

#include "ckks/polynomials.hpp"

namespace atlasc::ckks {

/// For each digit, b = -a s + e + P t on the digit's primes, and a: [digit][b, a][limb][N], with
/// `limbs` primes of Q and all special ones. It takes t to the secret s.
struct SwitchKey {
    std::size_t limbs;
    Words words;
};

/// Words of such a key.
std::size_t key_words(const Ring& ring, std::size_t limbs);

/// Digits of a polynomial of `limbs` primes: [digit][limb][N], extended.
struct Digits {
    std::size_t limbs;
    Words words;
};

Digits decomposed(const Ring& ring, const Word* polynomial, std::size_t limbs);

/// What is added to a switched polynomial: a ciphertext's other part, or parts.
struct Addends {
    const Word* first;
    const Word* second;
};

/// (sum of digits * key)/P + addends, all taken at X^galois, of as many primes as the digits have.
/// The key has at least these.
Polys switched(const Ring& ring, const Digits& digits, const SwitchKey& key, std::uint32_t galois,
               const Addends& addends);

/// Galois elements: of a rotation to the left, and of the conjugation.
std::uint32_t galois_of(const Ring& ring, std::size_t amount);
std::uint32_t galois_of_conjugation(const Ring& ring);

}  // namespace atlasc::ckks
