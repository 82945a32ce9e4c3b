// The transforms of the Phantom library.
#include "ckks/ring/transforms.hpp"

#include <fft.h>
#include <ntt.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <vector>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "ckks/ring/chain.hpp"
#include "ckks/ring/whole_transforms.hpp"
#include "devices/cuda/cuda.hpp"

namespace atlasc::ckks {
namespace {

/// Phantom's wrappers check no launch.
void called(const char* function) { check(cudaGetLastError(), function); }

/// Phantom's wrappers take the start of a whole polynomial and skip `first` limbs themselves.
template <typename T>
T* start_of(T* limb, std::size_t first, std::size_t degree) {
    const auto skipped = static_cast<std::uintptr_t>(first * degree * sizeof(Word));
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(limb) - skipped);
}

/// floor(2^64 factor / q), by which the kernels multiply by a constant (Shoup).
Word quotient(Word factor, const Prime& q) {
    return static_cast<Word>((static_cast<Wide>(factor) << 64) / q.value);
}

/// Powers of a root of unity in the order of the kernels: power i at rev(i).
struct Powers {
    Powers(Word root, const Prime& q, int log_degree)
        : values(std::size_t{1} << log_degree), quotients(values.size()) {
        Word power = 1;
        for (std::uint32_t at = 0; at < values.size(); ++at) {
            set(reverse_bits(at, log_degree), power, q);
            power = multiply(power, root, q);
        }
    }

    void set(std::size_t at, Word value, const Prime& q) {
        values[at] = value;
        quotients[at] = quotient(value, q);
    }

    std::vector<Word> values;
    std::vector<Word> quotients;
};

}  // namespace

int fast_prime_bits() { return 60; }
bool ends_divisions() { return false; }
bool begins_conversions() { return false; }
int most_log_run(int) { return 0; }
bool fuses_rotations(Word) { return true; }
int least_log_run() { return 0; }
bool gathers_numbers() { return true; }
std::size_t most_sums() { return 32; }
std::size_t together() { return 1; }

struct Transforms::Tables {
    ::DNTTTable phantom;
    std::size_t degree;
    std::size_t primes;
    std::size_t special;

    /// Of some limbs of one polynomial, modulo the primes from `first` on.
    void backward(Word* out, const Word* in, std::size_t count, std::size_t first) const {
        if (count == 0) {
            return;
        }
        if (out == in) {
            nwt_2d_radix8_backward_inplace(start_of(out, first, degree), phantom, count, first,
                                           stream());
        } else {
            nwt_2d_radix8_backward(start_of(out, first, degree), start_of(in, first, degree),
                                   phantom, count, first, stream());
        }
        called("the transform of residues");
    }
};

Transforms::Transforms(Memory&, int log_degree, const std::vector<Prime>& primes,
                       std::size_t special)
    : tables_(std::make_unique<Tables>()) {
    tables_->degree = std::size_t{1} << log_degree;
    tables_->primes = primes.size();
    tables_->special = special;
    // Tables of our own: Phantom's are of its smallest root of unity, and values by another root are no
    // ciphertext of another device.
    try {
        tables_->phantom.init(tables_->degree, primes.size(), stream());
        for (std::size_t at = 0; at < primes.size(); ++at) {
            const Prime& q = primes[at];
            const Word root = root_of(q, tables_->degree);
            const Word shrink = inverse(tables_->degree, q);
            const Powers powers(root, q, log_degree);
            Powers inverses(inverse(root, q), q, log_degree);
            // The kernels multiply by 1/N what the last stage adds, not what it subtracts.
            inverses.set(1, multiply(inverses.values[1], shrink, q), q);
            const ::DModulus modulus(q.value, q.ratio_low, q.ratio_high);
            tables_->phantom.set(&modulus, powers.values.data(), powers.quotients.data(),
                                 inverses.values.data(), inverses.quotients.data(), shrink,
                                 quotient(shrink, q), at, stream());
            synchronize();  // the copies read these tables
        }
    } catch (const Error&) {
        throw;
    } catch (const std::exception& error) {
        throw Error("Phantom cannot make its tables", error.what());
    }
    called("DNTTTable");
}

Transforms::~Transforms() = default;

void Transforms::forward(const Limbs& limbs) const {
    const std::size_t of_q = std::min(limbs.of_q, limbs.count);
    const std::size_t special = limbs.count - of_q;  // the first ones, which need not be all
    const std::size_t primes = tables_->primes - tables_->special + special;
    for (std::size_t at = 0; at < limbs.polynomials; ++at) {
        if (special > 0 && limbs.first == 0) {
            nwt_2d_radix8_forward_inplace_include_special_mod_exclude_range(
                limbs.out[at], tables_->phantom, limbs.count, 0, primes, special,
                limbs.begin[at], limbs.end[at], stream());
        } else {
            nwt_2d_radix8_forward_inplace(start_of(limbs.out[at], limbs.first, tables_->degree),
                                          tables_->phantom, limbs.count, limbs.first, stream());
        }
        called("the transform of residues");
    }
}

void Transforms::backward(const Limbs& limbs) const {
    const std::size_t of_q = std::min(limbs.of_q, limbs.count);
    for (std::size_t at = 0; at < limbs.polynomials; ++at) {
        tables_->backward(limbs.out[at], limbs.in[at], of_q, limbs.first);
        tables_->backward(limbs.out[at] + of_q * tables_->degree,
                          limbs.in[at] + of_q * tables_->degree, limbs.count - of_q,
                          tables_->primes - tables_->special);
    }
}

struct Fourier::Tables {
    explicit Tables(std::size_t degree) : degree(degree), info(degree, stream()) {}
    ~Tables() { overwrite(info.in(), degree / 2 * sizeof(cuDoubleComplex)); }  // a client's slots

    /// Phantom transforms in memory of its own.
    static void copy(void* to, const void* from, std::size_t slots) {
        static_assert(sizeof(Complex) == sizeof(cuDoubleComplex));
        check(cudaMemcpyAsync(to, from, slots * sizeof(Complex), cudaMemcpyDeviceToDevice,
                              stream()),
              "slots of a plaintext");
    }

    std::size_t degree;
    ::DCKKSEncoderInfo info;
};

Fourier::Fourier(Memory&, int log_slots) : log_slots_(log_slots) {
    const std::size_t slots = std::size_t{1} << log_slots;
    const std::size_t order = 4 * slots;
    std::vector<cuDoubleComplex> roots;
    for (std::size_t at = 0; at < order; ++at) {
        const double angle = 2.0 * pi * static_cast<double>(at) / static_cast<double>(order);
        roots.push_back(make_cuDoubleComplex(std::cos(angle), std::sin(angle)));
    }
    std::vector<std::uint32_t> powers(slots / 2);
    std::uint32_t power = 1;
    for (std::uint32_t& entry : powers) {
        entry = power;
        power = static_cast<std::uint32_t>(std::uint64_t{power} * 5 % order);
    }
    try {
        tables_ = std::make_unique<Tables>(2 * slots);
    } catch (const std::exception& error) {
        throw Error("Phantom cannot make its tables", error.what());
    }
    upload(tables_->info.twiddle(), roots.data(), roots.size() * sizeof(roots[0]));
    upload(tables_->info.mul_group(), powers.data(), powers.size() * sizeof(powers[0]));
}

Fourier::~Fourier() = default;

void Fourier::to_coefficients(Complex* data, std::size_t count, double factor, int) {
    const std::size_t slots = std::size_t{1} << log_slots_;
    for (std::size_t vector = 0; vector < count; ++vector) {
        tables_->copy(tables_->info.in(), data, slots);
        special_fft_backward(tables_->info, static_cast<std::size_t>(log_slots_),
                             factor / static_cast<double>(slots), stream());
        called("special_fft_backward");
        tables_->copy(data, tables_->info.in(), slots);
        data += slots;
    }
}

void Fourier::to_slots(Complex* data) {
    const std::size_t slots = std::size_t{1} << log_slots_;
    tables_->copy(tables_->info.in(), data, slots);
    special_fft_forward(tables_->info, static_cast<std::size_t>(log_slots_), stream());
    called("special_fft_forward");
    tables_->copy(data, tables_->info.in(), slots);
}

}  // namespace atlasc::ckks
