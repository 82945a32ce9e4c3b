// Switching a ciphertext from one secret to another, with keys that reach a level and no further.
//
// Hybrid key switching (Han and Ki 2020): a polynomial is cut into digits, each of no more bits
// than P, the product of the special primes; a digit times the key's part for it, summed, is divided
// by P. Digits are exact and centred. Rotations of one ciphertext share its digits (hoisting: Halevi
// and Shoup 2018): a key takes s to the secret that the rotation turns into s, and the products are
// permuted, not each digit. The division may wait for what follows (double hoisting: Bossuat, Mouchet,
// Troncoso-Pastoriza and Hubaux 2021), and divide by a level's primes as well.
#pragma once

#include "ckks/ring/switch_kernels.hpp"

namespace atlasc::ckks {

/// For each digit, b = -a s + e + P t on the digit's primes, and a: [digit][b, a], both packed. It
/// takes t to the secret s.
struct SwitchKey {
    Packing packing;
    Words words;
};

/// Those of a polynomial: [digit][limb][N / 2^log_run], extended.
struct OwnDigits {
    const Word* words = nullptr;
    std::size_t count = 0;
    int log_run = 0;
    bool of_primes = true;  ///< one for each block of the chain's primes
    const Word* own = nullptr;  ///< the polynomial, where a digit lacks its own primes
    bool begun = false;  ///< their transforms have begun, and the product with a key ends them
};

/// Digits of polynomials of `limbs` primes. Where the device begins conversions with transforms, they
/// lack their own primes, on which a digit is the polynomial itself: that must live as long.
struct Digits {
    std::size_t limbs;
    std::size_t count;  ///< of a polynomial
    std::size_t size;   ///< words of a polynomial's
    Words words;
    int log_run = 0;
    bool of_primes = true;
    bool begun = false;
    std::vector<const Word*> own = {};
    Words kept = {};  ///< polynomials that nobody else holds

    OwnDigits of(std::size_t polynomial) const {
        return {words.get() + polynomial * size, count, log_run, of_primes,
                own.empty() ? nullptr : own[polynomial], begun};
    }
};

/// Of some polynomials. Those that are multiplied `once` are left to that product where their
/// transforms have begun.
Digits decomposed(const Ring& ring, const std::vector<const Word*>& polynomials,
                  std::size_t limbs, bool once);

/// P times both parts of a ciphertext, of which the second may be null.
Addends times_special(const Ring& ring, const Word* first, const Word* second,
                      std::size_t limbs);

/// P times a ciphertext of `limbs` primes, modulo these and the special ones: [part][limb][N].
struct Extended {
    Extended(const Ring& ring, std::size_t limbs)
        : limbs(limbs), words(ring.polynomial(2 * (limbs + ring.size_p()))) {}

    std::size_t limbs;
    Words words;
};

/// Whether a key is there, and has the first `limbs` primes of the ring.
bool reaches(const Ring& ring, const SwitchKey* key, std::size_t limbs);

/// Digits times a key, which reaches as far as they do, plus addends, all at X^galois. Without a key
/// the addends alone.
struct Switched {
    OwnDigits digits;
    const SwitchKey* key;
    std::uint32_t galois;
    Addends addends;
};

/// What computes it, for polynomials of `limbs` primes.
InnerProduct inner_product(const Ring& ring, const Switched& x, std::size_t limbs, Word* out);

/// The sum of some, one or more; added to `out` with `accumulate`.
void add_switched(const Ring& ring, const std::vector<Switched>& terms, Extended& out,
                  bool accumulate);

/// The second parts over P, as digits for one product; the first one to add to them; and both parts.
Digits decomposed(const Ring& ring, const std::vector<const Extended*>& xs);
Addends first_part(const Ring& ring, const Extended& x);
Addends both_parts(const Ring& ring, const Extended& x);

/// The ciphertexts themselves, and with a level above 0 divided by the level's primes too: one
/// rounding. One ciphertext or more, of the same primes. See `divide`.
std::vector<Polys> divided(const Ring& ring, const std::vector<Extended>& xs, int level,
                           bool begun = false);

/// The ciphertexts of each of some, of `limbs` primes, divided as above: of digits that are multiplied
/// once, or of one polynomial's.
std::vector<Polys> switched(const Ring& ring, const std::vector<Switched>& xs, std::size_t limbs,
                            int level = 0);

/// The same ciphertexts, of 3 parts each, without the third one: that part is switched by a key from s^2
/// to s. Divided as above.
std::vector<Polys> relinearised(const Ring& ring, const std::vector<const Polys*>& xs,
                                const SwitchKey& key, std::size_t limbs, int level);

/// Galois elements: of a rotation to the left, and of the conjugation.
std::uint32_t galois_of(const Ring& ring, std::size_t amount);
std::uint32_t galois_of_conjugation(const Ring& ring);

}  // namespace atlasc::ckks
