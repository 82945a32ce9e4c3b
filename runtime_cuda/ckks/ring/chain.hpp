// The primes of a ring and the scale of a ciphertext at each level.
#pragma once

#include <cstddef>
#include <vector>

#include "atlasc/interface.hpp"
#include "ckks/ring/arithmetic.hpp"
#include "ckks/ring/limits.hpp"

namespace atlasc::ckks {

/// Coefficients of the sparse secret that are not zero, as the sets of atlasc/program/bootstrap have
/// it.
constexpr int sparse_weight = 32;

/// A ciphertext at level l has the first limbs[l] primes of Q and one scale, whatever way it came
/// about. Those beyond limbs[l - 1] are the level's own, q_l in product: one, or two where a device
/// is fast for small primes and the level needs more bits (EvalMod's of a bootstrap).
///
/// A product of two ciphertexts at level l has the scale scales[l]^2 / q_l after rescaling, so
/// scales[l]^2 = scales[l - 1] q_l wherever ciphertexts are multiplied: from below, each scale is
/// the geometric mean of the one below it and q_l, and differences between primes fade out.
/// Where nothing but plaintexts is multiplied, in the transforms of a bootstrap, scales are those
/// of Moduli::log_scales: a plaintext may have any scale.
struct Chain {
    /// Primes that a bootstrap to a lower level leaves out, of the chain that keys are for: `limbs` of
    /// them from `limb` on, and with them `digits` whole digits from `digit` on.
    struct Gap {
        std::size_t limb = 0;
        std::size_t limbs = 0;
        std::size_t digit = 0;
        std::size_t digits = 0;

        /// A limb of Q and a digit as the keys count them.
        ATLASC_DEVICE std::size_t key_limb(std::size_t own) const {
            return own < limb ? own : own + limbs;
        }
        ATLASC_DEVICE std::size_t key_digit(std::size_t own) const {
            return own < digit ? own : own + digits;
        }
    };

    std::size_t degree = 0;      ///< N; half as many slots
    std::vector<Prime> q;        ///< of level 0 first; that is one prime
    std::vector<std::size_t> limbs;  ///< by level
    std::vector<Prime> special;  ///< of key switching, P in product
    /// First prime of each digit of a key switch, and the end of the last: as many neighbours as
    /// have no more bits than P.
    std::vector<std::size_t> digits;
    std::vector<double> scales;  ///< by level
    bool raises = false;         ///< whether keys lead to a sparse secret and back
    int refreshed = -1;          ///< highest level after a bootstrap; -1 without bootstraps
    Gap gap{};

    /// Whether it has some primes of another chain, for which the device's transforms were checked.
    bool is_part() const { return gap.limbs != 0; }

    int top() const { return static_cast<int>(limbs.size()) - 1; }

    /// Primes of Q at a level. Throws Error: the parameters have no such level.
    std::size_t limbs_at(int level) const;

    /// q_l.
    double modulus(int level) const;

    /// log2 of the product of the first primes of q.
    double log_q(std::size_t primes) const;

    /// log2 of the product of all primes, which security is judged by.
    double log_qp() const;
};

/// The chain that a program was compiled for, by the sizes of its primes. Throws Error: it names
/// none, or one beyond limits.hpp. Here parameters enter the engine.
Chain chain_of(const Parameters& parameters);

/// The chain without the primes of the levels from `level` + 1 to `refreshed`, which have those of
/// `level` then. A bootstrap that ends at `refreshed` ends at `level` in it, and the steps before have
/// fewer primes; keys stay those of the whole chain.
Chain landed(Chain chain, int level);

/// Where digits of a key switch start, and the end: neighbours of at most `most` bits in all.
std::vector<std::size_t> groups_of(const std::vector<int>& bits, int most);

/// Digits of a key switch of a polynomial of the first `limbs` primes.
std::size_t digits_of(const Chain& chain, std::size_t limbs);

/// Bits by which the special primes that are left to a key switch exceed its only digit. What the
/// key's error adds is then far below what the division rounds: atlasc/targets/parameters.py.
constexpr int digit_room = 10;

/// Special primes, the first ones, that a key switch of a polynomial of the first `limbs` primes
/// computes with. They are all but where it has one digit, which is shorter than P.
std::size_t special_for(const Chain& chain, std::size_t limbs);

/// Refuses fewer than 128 bits of security (Error), by what atlasc/targets/security.py has: a table
/// for the dense ternary secret, classical attacks; estimates for the sparse one.
void require_security(const Chain& chain);

/// Whether every residue of polynomials [part][limb][N] in the host's memory is below its prime. Kernels
/// rely on it: with another one each of them gives another result.
bool is_reduced(const Chain& chain, std::size_t limbs, const std::uint8_t* words,
                std::size_t parts);

/// The least b with q < 2^b.
int bits_of(const Prime& q);

/// a^-1 modulo a prime that does not divide a.
Word inverse(Word a, const Prime& q);

/// psi: a number of order 2N modulo a prime q = 1 modulo 2N, the same for all devices.
Word root_of(const Prime& q, std::size_t degree);

}  // namespace atlasc::ckks
