// The transforms of a device: of residues (NTT), and of slots (Fourier).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ckks/ring/arithmetic.hpp"
#include "ckks/ring/device.hpp"
#include "ckks/ring/limits.hpp"

namespace atlasc::ckks {

struct InnerProduct;   // switch_kernels.hpp
struct InnerProducts;

/// Primes of at most so many bits are fast on the device.
int fast_prime_bits();

/// Whether a transform forwards can end a division (`Limbs::inverses`), and whether it can begin with
/// a conversion to other primes (`Limbs::converts`).
bool ends_divisions();
bool begins_conversions();

/// Of a ring of degree 2^log_degree, the greatest r for which the device transforms polynomials in
/// X^(2^r) as ones of 2^r times fewer coefficients; 0: it transforms whole limbs alone.
int most_log_run(int log_degree);

/// Whether the device computes `RotatedProducts` modulo a prime faster than one rotation after
/// another, for plaintexts whose values have runs of 2^least_log_run() or more.
bool fuses_rotations(Word q);
int least_log_run();

/// Whether the device finds the elements of plaintexts faster than the host.
bool gathers_numbers();

/// Sums of `RotatedProducts` that the device had best compute at once, and so holds: rotated
/// operands are made anew for the next ones.
std::size_t most_sums();

/// Polynomials that the device had best work on at once, at most `Limbs::most`: one where its caches
/// hold no more.
std::size_t together();

/// How residues modulo a block of primes b become residues modulo other primes, exactly: with
/// y_s = x (B/b_s)^-1 mod b_s, x = sum over s of y_s B/b_s - u B, where u is the sum of y_s/b_s
/// rounded, so that |x| <= B/2. (Halevi, Polyakov and Shoup 2019, section 2.2.)
struct BlockConstants {
    static constexpr std::size_t rows = most_in_block + 1;  ///< of hats, and behind them of minus
    /// Primes of a block that has `balanced` ones.
    static constexpr std::size_t most_balanced = 10;
    static constexpr int most_balanced_bits = 50;

    const Word* inverses;  ///< [size]: (B/b_s)^-1 mod b_s
    const Word* hats;      ///< [size][all primes]: B/b_s
    const Word* minus;     ///< [all primes]: -B
    const Prime* own;      ///< [size]
    const double* shares;  ///< [size]: 1/b_s
    /// [all primes][rows]: hats and minus from -q/2 to q/2; null where primes are more or larger.
    const double* balanced;
    std::size_t first;     ///< position of the first prime in Q, then P
    std::size_t size;
};

/// Limbs of a few polynomials that are transformed together, modulo the same primes.
struct Limbs {
    static constexpr std::size_t most = most_together;  ///< polynomials

    std::size_t count;                   ///< limbs of a polynomial
    std::size_t first = 0;               ///< prime of the first limb
    std::size_t of_q = ~std::size_t{0};  ///< limbs before special primes, of which the rest are
    /// Forwards, polynomials in X^(2^log_run): limbs have N / 2^log_run words, and of 2^log_run equal
    /// values, which are neighbours, one. At most `most_log_run`.
    int log_run = 0;
    std::size_t copies = 1;              ///< polynomials that follow one another, for each of `add`
    std::size_t polynomials = 0;
    Word* out[most] = {};
    const Word* in[most] = {};           ///< may be that of `out`
    std::uint32_t begin[most] = {};      ///< limbs from begin to end are left as they are
    std::uint32_t end[most] = {};

    /// Where a device `ends_divisions`: what is written, to the quotients, is (dividend - x) times the
    /// limb's inverse. Null: nothing is divided.
    const Word* inverses = nullptr;
    const Word* dividends[most] = {};
    Word* quotients[most] = {};

    /// Where a device `begins_conversions`: backwards, coefficients are multiplied by these numbers of
    /// their limbs (null: by none); forwards with `converts`, an operand is not coefficients but
    /// residues modulo a block of primes, [prime][N], times its `inverses`.
    const Word* scales = nullptr;
    bool converts = false;
    BlockConstants blocks[most] = {};

    void add(Word* to, const Word* from, std::size_t kept = 0, std::size_t kept_end = 0) {
        out[polynomials] = to;
        in[polynomials] = from;
        begin[polynomials] = static_cast<std::uint32_t>(kept);
        end[polynomials] = static_cast<std::uint32_t>(kept_end);
        ++polynomials;
    }

    /// Prime of a limb, where special primes follow `size_q` others.
    ATLASC_DEVICE std::size_t prime(std::size_t limb, std::size_t size_q) const {
        return limb < of_q ? first + limb : size_q + limb - of_q;
    }
    ATLASC_DEVICE bool skips(std::size_t polynomial, std::size_t limb) const {
        return limb >= begin[polynomial] && limb < end[polynomial];
    }
};

/// Number theoretic transforms of polynomials modulo X^N + 1: place i of the values holds that at
/// psi^(2 rev(i) + 1), for psi = `root_of` the prime and the reversal of log2 N bits.
class Transforms {
public:
    /// For primes q = 1 modulo 2N, N = 2^log_degree: those of Q, then `special` special ones.
    /// Throws Error: too little memory, or a library that fails.
    Transforms(Memory& memory, int log_degree, const std::vector<Prime>& primes,
               std::size_t special);
    ~Transforms();

    /// Values of coefficients, and coefficients of values. Operands and results are less than their
    /// primes.
    void forward(const Limbs& limbs) const;
    void backward(const Limbs& limbs) const;

    /// As `forward`, of digits: a device may leave the last pass to `key_products`.
    void begin_forward(const Limbs& limbs) const;

    /// Digits whose transforms have begun, times keys: each product, and the sum of some. Digits are
    /// multiplied once, since nobody writes their values. The products' limbs from `values` on begin
    /// their transforms backwards, which `end_backward` ends.
    void key_products(const std::vector<InnerProduct>& products) const;
    void key_products(const InnerProducts& sum) const;
    void end_backward(const Limbs& limbs) const;

private:
    struct Tables;

    std::unique_ptr<Tables> tables_;
};

struct Complex {
    double x;
    double y;
};

/// The Fourier transform between slots and halves of real polynomials: slot j is the value at
/// exp(i pi 5^j / N) of the polynomial whose coefficient k is x of entry k, and k + N/2 its y.
class Fourier {
public:
    /// For 2^log_slots = N/2 slots. Throws Error as `Transforms`.
    Fourier(Memory& memory, int log_slots);
    ~Fourier();

    /// In place, `count` vectors on the device one after another: slots in bit-reversed order become
    /// coefficients in order, multiplied by factor / slots. Of slots that repeat 2^log_run times a
    /// vector has one period, which becomes the coefficients of a polynomial in X^(2^log_run); at
    /// most `most_log_run`.
    void to_coefficients(Complex* data, std::size_t count, double factor, int log_run = 0);

    /// The way back, of one vector.
    void to_slots(Complex* data);

private:
    struct Tables;

    int log_slots_;
    std::unique_ptr<Tables> tables_;
};

}  // namespace atlasc::ckks
