// Polynomials modulo X^N + 1 and the primes of a chain, on the device.
//
// A polynomial is its residues modulo some primes, one after another, N words each: coefficients,
// or values by the number theoretic transform (NTT). "Extended" are the first primes of Q followed
// by all special ones.
#pragma once

#include <memory>
#include <vector>

#include "ckks/ring/chain.hpp"
#include "ckks/ring/device.hpp"
#include "ckks/ring/transforms.hpp"

namespace atlasc::ckks {

using Words = Array<Word>;

/// What divides a polynomial: a level's own primes, P, or both at once.
struct Divisor {
    BlockConstants block;
    const Word* inverse;   ///< [primes below]: of the divisor
    std::size_t primes;    ///< of Q
    std::size_t special;
};

/// Moduli, transforms, and what depends on nothing else.
///
/// Where a key switch has one short digit, P is longer than it must be. The digit is then a multiple of
/// R, the product of the last special primes: of the polynomial x modulo its own primes it is
/// R [x / R], which is x modulo these. So everything up to the division by P is zero modulo the primes
/// of R, and nobody computes with them. The constants of `switching` have the factor R.
class Ring {
public:
    /// Throws Error: too little memory, or transforms that are not the expected ones
    /// (transform_check.hpp).
    Ring(Memory& memory, Chain chain);
    /// Of the bootstraps that end at a lower level; see `landed`.
    Ring(const Ring& whole, int level);
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring();

    const Chain& chain() const { return chain_; }
    Memory& memory() const { return memory_; }
    std::size_t degree() const { return chain_.degree; }
    int log_degree() const { return log_degree_; }
    std::size_t slots() const { return chain_.degree / 2; }

    /// Numbers of primes: of Q, special ones that key switches compute with, and all there are.
    std::size_t size_q() const { return chain_.q.size(); }
    std::size_t size_p() const { return size_p_; }
    std::size_t size_qp() const { return host_primes_.size(); }

    /// What switches keys of polynomials of some primes: this ring, or the same one with fewer special
    /// primes.
    const Ring& switching(std::size_t limbs) const;

    /// Digits of a key switch of a polynomial of some primes of Q.
    std::size_t digits(std::size_t limbs) const { return digits_of(chain_, limbs); }

    /// All primes on the device, those of Q first.
    const Prime* primes() const { return primes_->get(); }

    /// Room for a polynomial of some primes.
    Words polynomial(std::size_t limbs) const { return Words(memory_, limbs * degree()); }

    /// NTT in place of `count` limbs that begin at `limb`, modulo the primes from `first` on.
    void forward(Word* limb, std::size_t count, std::size_t first = 0) const;

    /// Coefficients of values; `out` and `in` may be the same.
    void backward(Word* out, const Word* in, std::size_t count, std::size_t first = 0) const;

    /// NTT of limbs of several polynomials, and back.
    void forward(const Limbs& limbs) const { transforms_->forward(limbs); }
    void backward(const Limbs& limbs) const { transforms_->backward(limbs); }

    /// NTT of digits, of which the products end what has begun, and back (`Transforms`).
    void begin_forward(const Limbs& limbs) const { transforms_->begin_forward(limbs); }
    void end_backward(const Limbs& limbs) const { transforms_->end_backward(limbs); }
    template <typename Products>
    void key_products(const Products& products) const {
        transforms_->key_products(products);
    }

    /// One of them; the last one has fewer primes than the chain's where the polynomial ends.
    BlockConstants digit(std::size_t number, std::size_t limbs) const;

    /// [limb]: what the residues of a polynomial are multiplied by before its digits are converted
    /// (`BlockConstants::inverses`).
    const Word* digit_inverses(std::size_t limbs) const {
        return digit_inverses_.get() + (limbs - 1) * size_q();
    }

    /// The primes of a level, none at level 0, and P with `special`.
    Divisor divisor(int level, bool special) const;

    /// The first special prime's inverse modulo the first prime of Q.
    const Word* inverse_of_first_special() const { return inverse_of_first_special_.get(); }

    /// P modulo the primes of Q: for the host, and on the device.
    const std::vector<Word>& special_product() const { return special_product_; }
    const Word* special_products() const { return special_products_.get(); }

    /// [prime of Q]: the digit of a key switch that it belongs to.
    const Word* digit_numbers() const { return digit_numbers_.get(); }

private:
    /// With the first `special` of its special primes, for polynomials of at most `limbs` primes.
    Ring(const Ring& whole, std::size_t limbs, std::size_t special);

    std::size_t block_words() const {
        return most_in_block + (most_in_block + 1) * size_qp();
    }
    BlockConstants block(std::size_t number, std::size_t first, std::size_t size) const;
    std::size_t divisor_number(int level, bool special) const;
    void make_constants();
    void make_balanced(const std::vector<Word>& blocks, const std::vector<Prime>& own_primes);

    Memory& memory_;
    Chain chain_;
    int log_degree_ = 0;
    std::vector<Prime> host_primes_;
    std::size_t most_limbs_;  ///< of polynomials that it switches keys of
    std::size_t size_p_;
    std::shared_ptr<const Array<Prime>> primes_;
    std::shared_ptr<const Transforms> transforms_;
    /// With fewer special primes, the fewest first. Low levels are the same in part of a chain.
    std::vector<std::shared_ptr<const Ring>> narrower_;
    Words blocks_;             ///< a digit's that ends with prime i at i, then divisors'
    Array<Prime> own_primes_;  ///< of each block
    Array<double> shares_;     ///< 1 over each of them
    Array<double> balanced_;   ///< of each block, where transforms convert (`BlockConstants`)
    std::vector<bool> has_balanced_;
    Words inverses_;           ///< of divisors: [divisor][primes of Q]
    Words digit_inverses_;     ///< [primes of a polynomial][prime]
    Words inverse_of_first_special_;
    std::vector<Word> special_product_;
    Words special_products_;
    Words digit_numbers_;
};

}  // namespace atlasc::ckks
