// Phantom's functions by what they have to compute, on the host.
#include <fft.h>
#include <host/ntt.h>
#include <ntt.cuh>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <stdexcept>

namespace {

using Word = std::uint64_t;
__extension__ typedef unsigned __int128 Wide;
using Complex = std::complex<double>;

Word times(Word a, Word b, Word q) { return static_cast<Word>(static_cast<Wide>(a) * b % q); }

Word power(Word base, Word exponent, Word q) {
    Word result = 1;
    for (; exponent != 0; exponent >>= 1, base = times(base, base, q)) {
        result = (exponent & 1) != 0 ? times(result, base, q) : result;
    }
    return result;
}

/// Miller and Rabin's test; these bases decide all numbers of 64 bits.
bool is_prime(Word q) {
    for (const Word small : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
        if (q % small == 0) {
            return q == small;
        }
        Word odd = q - 1;
        int twos = 0;
        for (; odd % 2 == 0; odd /= 2) {
            ++twos;
        }
        Word x = power(small, odd, q);
        bool witness = x != 1 && x != q - 1;
        for (int at = 1; witness && at < twos; ++at) {
            x = times(x, x, q);
            witness = x != q - 1;
        }
        if (witness) {
            return false;
        }
    }
    return true;
}

std::size_t reversed(std::size_t x, int bits) {
    std::size_t result = 0;
    for (int bit = 0; bit < bits; ++bit) {
        result |= ((x >> bit) & 1) << (bits - 1 - bit);
    }
    return result;
}

/// A constant factor of a product modulo q (Shoup).
struct Factor {
    Factor(Word value, Word q)
        : value(value), q(q), quotient(static_cast<Word>((static_cast<Wide>(value) << 64) / q)) {}

    Word operator*(Word x) const {
        const Word high = static_cast<Word>((static_cast<Wide>(quotient) * x) >> 64);
        const Word rest = value * x - high * q;
        return rest >= q ? rest - q : rest;
    }

    Word value;
    Word q;
    Word quotient;
};

void require_reduced(const Word* values, std::size_t n, Word q) {
    if (std::any_of(values, values + n, [q](Word value) { return value >= q; })) {
        throw std::logic_error("a transform of numbers that are not reduced");
    }
}

void forward(Word* a, const DNTTTable& tables, std::size_t index) {
    const DNTTTable::Table& table = tables.tables.at(index);
    const Word q = table.modulus;
    require_reduced(a, tables.n, q);
    std::size_t t = tables.n;
    for (std::size_t m = 1; m < tables.n; m *= 2) {
        t /= 2;
        for (std::size_t i = 0; i < m; ++i) {
            const Factor w(table.powers[m + i], q);
            for (std::size_t j = 2 * i * t; j < (2 * i + 1) * t; ++j) {
                const Word u = a[j];
                const Word v = w * a[j + t];
                a[j] = u + v >= q ? u + v - q : u + v;
                a[j + t] = u >= v ? u - v : u + q - v;
            }
        }
    }
}

void backward(Word* a, const DNTTTable& tables, std::size_t index) {
    const DNTTTable::Table& table = tables.tables.at(index);
    const Word q = table.modulus;
    require_reduced(a, tables.n, q);
    std::size_t t = 1;
    for (std::size_t m = tables.n / 2; m >= 1; m /= 2) {
        for (std::size_t i = 0; i < m; ++i) {
            const Factor w(table.inverse_powers[m + i], q);
            for (std::size_t j = 2 * i * t; j < (2 * i + 1) * t; ++j) {
                const Word u = a[j];
                const Word v = a[j + t];
                a[j] = u + v >= q ? u + v - q : u + v;
                a[j + t] = w * (u >= v ? u - v : u + q - v);
            }
        }
        t *= 2;
    }
    const Factor scale(table.n_inverse, q);
    for (std::size_t j = 0; j < tables.n; ++j) {
        a[j] = scale * a[j];
    }
}

/// One butterfly after another, as Cheon, Kim, Kim and Song's library has them.
void butterflies(std::vector<Complex>& values, DCKKSEncoderInfo& info, std::size_t order,
                 std::size_t length, bool inverse) {
    for (std::size_t start = 0; start < values.size(); start += length) {
        for (std::size_t j = 0; j < length / 2; ++j) {
            std::size_t turn = info.mul_group()[j] % (4 * length);
            turn = (inverse ? 4 * length - turn : turn) * (order / (4 * length));
            const cuDoubleComplex root = info.twiddle()[turn % order];
            Complex& top = values[start + j];
            Complex& bottom = values[start + j + length / 2];
            const Complex w(root.x, root.y);
            if (inverse) {
                const Complex difference = (top - bottom) * w;
                top += bottom;
                bottom = difference;
            } else {
                const Complex product = bottom * w;
                bottom = top - product;
                top += product;
            }
        }
    }
}

std::vector<Complex> reversed_values(DCKKSEncoderInfo& info, std::size_t n, int bits) {
    std::vector<Complex> values(n);
    for (std::size_t at = 0; at < n; ++at) {
        const cuDoubleComplex value = info.in()[reversed(at, bits)];
        values[at] = {value.x, value.y};
    }
    return values;
}

}  // namespace

namespace phantom::arith {

Modulus::Modulus(std::uint64_t value) : value_(value) {
    const Wide all = ~static_cast<Wide>(0);  // 2^128 - 1; value is no power of two
    const Wide ratio = value == 0 ? 0 : all / value;
    ratio_ = {static_cast<Word>(ratio), static_cast<Word>(ratio >> 64), 0};
}

std::vector<Modulus> CoeffModulus::Create(std::size_t degree, const std::vector<int>& bit_sizes) {
    std::map<int, std::vector<Word>> found;
    for (const int bits : bit_sizes) {
        std::vector<Word>& primes = found[bits];
        const auto wanted = std::count(bit_sizes.begin(), bit_sizes.end(), bits);
        Word q = (Word{1} << bits) + 1;
        while (static_cast<std::ptrdiff_t>(primes.size()) < wanted) {
            q -= 2 * degree;
            if (q >> (bits - 1) == 0) {
                throw std::logic_error("not enough primes");
            }
            if (is_prime(q)) {
                primes.push_back(q);
            }
        }
    }
    std::vector<Modulus> result;
    for (const int bits : bit_sizes) {
        result.emplace_back(found[bits].back());
        found[bits].pop_back();
    }
    return result;
}

NTT::NTT(int log_degree, const Modulus& modulus) {
    const std::size_t n = std::size_t{1} << log_degree;
    const Word q = modulus.value();
    Word generator = 2;
    do {
        root_ = power(generator++, (q - 1) / (2 * n), q);
    } while (power(root_, n, q) != q - 1);
    const Word inverse = power(root_, q - 2, q);
    inverse_degree_ = power(n, q - 2, q);
    powers_.resize(n);
    inverse_powers_.resize(n);
    Word up = 1;
    Word down = 1;
    for (std::size_t at = 0; at < n; ++at) {
        powers_[reversed(at, log_degree)] = up;
        inverse_powers_[reversed(at, log_degree)] = down;
        up = times(up, root_, q);
        down = times(down, inverse, q);
    }
}

}  // namespace phantom::arith

DModulus::DModulus(std::uint64_t value, std::uint64_t, std::uint64_t) : value(value) {}

void DNTTTable::init(std::uint64_t degree, std::uint64_t size, const cudaStream_t&) {
    n = degree;
    tables.resize(size);
}

void DNTTTable::set(const DModulus* modulus, const std::uint64_t* twiddle, const std::uint64_t*,
                    const std::uint64_t* itwiddle, const std::uint64_t*, std::uint64_t n_inverse,
                    std::uint64_t, std::uint64_t index, const cudaStream_t&) const {
    tables.at(index) = {modulus->value, n_inverse, {twiddle, twiddle + n},
                        {itwiddle, itwiddle + n}};
}

/// Counts a transform of some limbs, by two kernels that read and write each number.
bool counted(const DNTTTable& tables, std::size_t limbs) {
    if (stand_in::tally().begun) {
        const double bytes = 4.0 * sizeof(Word) * static_cast<double>(limbs * tables.n);
        stand_in::tally().add("transforms of residues", 2, bytes, limbs);
    }
    return stand_in::tally().begun;
}

/// Counts a Fourier transform: a kernel for its large steps, one for its small ones, and one that
/// scales or reorders.
bool counted(std::size_t log_n) {
    if (stand_in::tally().begun) {
        const double bytes = 6.0 * sizeof(Complex) * static_cast<double>(std::size_t{1} << log_n);
        stand_in::tally().add("transforms of slots", 3, bytes);
    }
    return stand_in::tally().begun;
}

void nwt_2d_radix8_forward_inplace(std::uint64_t* inout, const DNTTTable& tables,
                                   std::size_t count, std::size_t start, const cudaStream_t&) {
    if (counted(tables, count)) {
        return;
    }
    for (std::size_t index = start; index < start + count; ++index) {
        forward(inout + index * tables.n, tables, index);
    }
}

void nwt_2d_radix8_forward_inplace_include_special_mod_exclude_range(
    std::uint64_t* inout, const DNTTTable& tables, std::size_t count, std::size_t start,
    std::size_t size_qp, std::size_t size_p, std::size_t begin, std::size_t end,
    const cudaStream_t&) {
    if (counted(tables, count - (end - begin))) {
        return;
    }
    for (std::size_t limb = start; limb < start + count; ++limb) {
        const bool special = limb >= start + count - size_p;
        const std::size_t index = special ? size_qp - (start + count - limb) : limb;
        if (limb < begin || limb >= end) {
            forward(inout + limb * tables.n, tables, index);
        }
    }
}

void nwt_2d_radix8_backward_inplace(std::uint64_t* inout, const DNTTTable& tables,
                                    std::size_t count, std::size_t start, const cudaStream_t&) {
    if (counted(tables, count)) {
        return;
    }
    for (std::size_t index = start; index < start + count; ++index) {
        backward(inout + index * tables.n, tables, index);
    }
}

void nwt_2d_radix8_backward(std::uint64_t* out, const std::uint64_t* in, const DNTTTable& tables,
                            std::size_t count, std::size_t start, const cudaStream_t& stream) {
    if (!stand_in::tally().begun) {
        std::copy(in + start * tables.n, in + (start + count) * tables.n, out + start * tables.n);
    }
    nwt_2d_radix8_backward_inplace(out, tables, count, start, stream);
}

DCKKSEncoderInfo::DCKKSEncoderInfo(std::size_t coeff_count, const cudaStream_t&)
    : in_(new cuDoubleComplex[coeff_count / 2]),
      twiddle_(new cuDoubleComplex[2 * coeff_count]),
      mul_group_(new std::uint32_t[coeff_count / 4]) {}

DCKKSEncoderInfo::~DCKKSEncoderInfo() {
    delete[] in_;
    delete[] twiddle_;
    delete[] mul_group_;
}

cuDoubleComplex* DCKKSEncoderInfo::in() { return in_; }
cuDoubleComplex* DCKKSEncoderInfo::twiddle() { return twiddle_; }
std::uint32_t* DCKKSEncoderInfo::mul_group() { return mul_group_; }

void special_fft_forward(DCKKSEncoderInfo& info, std::size_t log_n, const cudaStream_t&) {
    if (counted(log_n)) {
        return;
    }
    const std::size_t n = std::size_t{1} << log_n;
    const int bits = static_cast<int>(log_n);
    // Coefficients in their order, slots in reversed order.
    std::vector<Complex> values(n);
    for (std::size_t at = 0; at < n; ++at) {
        const cuDoubleComplex value = info.in()[at];
        values[reversed(at, bits)] = {value.x, value.y};
    }
    for (std::size_t length = 2; length <= n; length *= 2) {
        butterflies(values, info, 4 * n, length, false);
    }
    for (std::size_t at = 0; at < n; ++at) {
        info.in()[reversed(at, bits)] = {values[at].real(), values[at].imag()};
    }
}

void special_fft_backward(DCKKSEncoderInfo& info, std::size_t log_n, double scalar,
                          const cudaStream_t&) {
    if (counted(log_n)) {
        return;
    }
    const std::size_t n = std::size_t{1} << log_n;
    const int bits = static_cast<int>(log_n);
    std::vector<Complex> values = reversed_values(info, n, bits);
    for (std::size_t length = n; length >= 2; length /= 2) {
        butterflies(values, info, 4 * n, length, true);
    }
    for (std::size_t at = 0; at < n; ++at) {
        const Complex value = values[reversed(at, bits)] * scalar;
        info.in()[at] = {value.real(), value.imag()};
    }
}
