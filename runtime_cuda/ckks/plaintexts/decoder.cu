// Polynomials to slots.
#include <cmath>

#include "atlasc/base/error.hpp"
#include "ckks/plaintexts/encoder.hpp"
#include "ckks/ring/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

struct Gather {
    int log_slots;
    const Complex* in;
    double* slots;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::uint32_t place = reverse_bits(static_cast<std::uint32_t>(at), log_slots);
        slots[2 * at] = in[place].x;
        slots[2 * at + 1] = in[place].y;
    }
};

/// The centred number with residues modulo one prime or two, times a factor.
struct Compose {
    int log_degree;
    bool two;
    const Prime* primes;
    Word inverse;  ///< q_0^-1 modulo q_1
    const Word* in;
    double factor;
    Complex* out;

    ATLASC_DEVICE static double centred(Word x, const Prime& q) {
        return x > q.value / 2 ? -static_cast<double>(q.value - x) : static_cast<double>(x);
    }

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t degree = std::size_t{1} << log_degree;
        const Word low = in[at];
        double number = centred(low, primes[0]);
        if (two) {
            const Word same = lift(low, primes[0], primes[1]);
            const Word rest = multiply(subtract(in[degree + at], same, primes[1]), inverse,
                                       primes[1]);
            number += static_cast<double>(primes[0].value) * centred(rest, primes[1]);
        }
        double* parts = at < degree / 2 ? &out[at].x : &out[at - degree / 2].y;
        *parts = number * factor;
    }
};

}  // namespace

ComplexVector Encoder::decode(const Words& polynomial, double scale) {
    const std::size_t limbs = std::min(polynomial.size() / ring_.degree(), read_limbs);
    const std::vector<Prime>& q = ring_.chain().q;
    const std::lock_guard<std::mutex> alone(mutex_);
    const Words coefficients = as_secret(ring_.polynomial(limbs));
    ring_.backward(coefficients.get(), polynomial.get(), limbs);
    const Word inverted = limbs == 2 ? inverse(reduce(q[0].value, q[1]), q[1]) : 0;
    launch(ring_.degree(),
           Compose{ring_.log_degree(), limbs == 2, ring_.primes(), inverted, coefficients.get(),
                   1.0 / scale, data_.get()},
           "coefficients of a decryption");
    fourier_.to_slots(data_.get());
    launch(ring_.slots(), Gather{log_slots_, data_.get(), input_.get()},
           "slots of a decryption");
    ComplexVector slots(ring_.slots());
    download(slots.data(), input_.get(), slots.size() * sizeof(slots[0]));

    // Coefficients of garbage are uniform: their mean square is q^2/12. Those of slots are, by
    // Parseval, a mean square of sum |z|^2 / (slots * N).
    double square = 0.0;
    for (const std::complex<double>& slot : slots) {
        square += std::norm(slot);
    }
    const double mean = square / static_cast<double>(ring_.slots()) /
                        static_cast<double>(ring_.degree());
    const double largest = std::exp2(ring_.chain().log_q(limbs)) / scale;
    if (!(std::sqrt(mean) < largest / 8)) {
        throw Error("a ciphertext does not decrypt to anything",
                    "its slots are as large as those of a random one",
                    "use the key that the query was encrypted with; if it was that one, a "
                    "polynomial was evaluated outside its range: calibrate on more inputs");
    }
    return slots;
}

}  // namespace atlasc::ckks
