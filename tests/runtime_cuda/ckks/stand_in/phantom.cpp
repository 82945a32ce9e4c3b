// Phantom's functions by what they have to compute, on the host.
#include <fft.h>
#include <ntt.cuh>

#include <algorithm>
#include <cmath>
#include <complex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

using Word = std::uint64_t;
__extension__ typedef unsigned __int128 Wide;
using Complex = std::complex<double>;

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

/// Stages of a transform that run, as powers of two: with "halfway" the first six.
std::size_t blocks(std::size_t n) { return stand_in::asked("halfway") ? 64 : n; }

/// What ATLASC_STAND_IN makes of a right transform.
void spoil(Word* a, std::size_t n, Word q, std::size_t index, bool forwards) {
    int bits = 0;
    while (std::size_t{1} << bits < n) {
        ++bits;
    }
    const auto reorder = [&](const auto& place) {
        const std::vector<Word> right(a, a + n);
        for (std::size_t at = 0; at < n; ++at) {
            a[at] = right[place(at)];
        }
    };
    if (stand_in::asked("unreduced")) {
        for (std::size_t at = 0; at < n; at += 4) {
            a[at] += q;
        }
    } else if (stand_in::asked("reversed")) {
        reorder([&](std::size_t at) { return reversed(at, bits); });
    } else if (stand_in::asked("another root") && forwards) {
        reorder([&](std::size_t at) {
            return reversed(5 * (2 * reversed(at, bits) + 1) % (2 * n) / 2, bits);
        });
    } else if (stand_in::asked("another order")) {
        std::swap(a[2], a[3]);
    } else if (stand_in::asked("wrong") && index % 2 == 1) {
        a[9] = (a[9] + 1) % q;
    } else if (stand_in::asked("wrong and unreduced")) {
        a[9] += q + 1;
    } else if (stand_in::asked("not launched")) {
        stand_in::launched = cudaErrorNoKernelImageForDevice;
    } else if (stand_in::asked("a fault")) {
        stand_in::ran = cudaErrorIllegalAddress;
    } else if (stand_in::asked("a lost device")) {
        stand_in::ran = cudaErrorECCUncorrectable;
    }
}

void forward(Word* a, const DNTTTable& tables, std::size_t index) {
    const DNTTTable::Table& table = tables.tables.at(index);
    const Word q = table.modulus;
    require_reduced(a, tables.n, q);
    std::size_t t = tables.n;
    for (std::size_t m = 1; m < blocks(tables.n); m *= 2) {
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
    spoil(a, tables.n, q, index, true);
}

void backward(Word* a, const DNTTTable& tables, std::size_t index) {
    const DNTTTable::Table& table = tables.tables.at(index);
    const Word q = table.modulus;
    require_reduced(a, tables.n, q);
    const std::size_t last = tables.n / blocks(tables.n);
    std::size_t t = 1;
    for (std::size_t m = tables.n / 2; m >= last; m /= 2) {
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
    // Phantom's tables have the factor of the other half in the last stage's power.
    const Factor scale(table.n_inverse, q);
    for (std::size_t j = 0; last == 1 && j < tables.n / 2; ++j) {
        a[j] = scale * a[j];
    }
    spoil(a, tables.n, q, index, false);
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

DModulus::DModulus(std::uint64_t value, std::uint64_t, std::uint64_t) : value(value) {}

void DNTTTable::init(std::uint64_t degree, std::uint64_t size, const cudaStream_t&) {
    n = degree;
    tables.resize(size);
}

void DNTTTable::set(const DModulus* modulus, const std::uint64_t* twiddle,
                    const std::uint64_t* twiddle_shoup, const std::uint64_t* itwiddle,
                    const std::uint64_t* itwiddle_shoup, std::uint64_t n_inverse,
                    std::uint64_t n_inverse_shoup, std::uint64_t index,
                    const cudaStream_t&) const {
    const Word q = modulus->value;
    const auto require = [q](const Word* factors, const Word* quotients, std::size_t count) {
        for (std::size_t at = 0; at < count; ++at) {
            if (Factor(factors[at], q).quotient != quotients[at]) {
                throw std::logic_error("another quotient than the kernels multiply by");
            }
        }
    };
    require(twiddle, twiddle_shoup, n);
    require(itwiddle, itwiddle_shoup, n);
    require(&n_inverse, &n_inverse_shoup, 1);
    tables.at(index) = {q, n_inverse, {twiddle, twiddle + n}, {itwiddle, itwiddle + n}};
}

/// Whether nothing is computed: a transform of some limbs is counted, by two kernels that read and
/// write each number, or ATLASC_STAND_IN asks for it.
bool left_out(const DNTTTable& tables, std::size_t limbs) {
    if (stand_in::tally().begun) {
        const double bytes = 4.0 * sizeof(Word) * static_cast<double>(limbs * tables.n);
        stand_in::tally().add("transforms of residues", 2, bytes, limbs);
    }
    return stand_in::tally().begun || stand_in::asked("nothing");
}

/// The same of a Fourier transform: a kernel for its large steps, one for its small ones, and one that
/// scales or reorders.
bool left_out(std::size_t log_n) {
    if (stand_in::tally().begun) {
        const double bytes = 6.0 * sizeof(Complex) * static_cast<double>(std::size_t{1} << log_n);
        stand_in::tally().add("transforms of slots", 3, bytes);
    }
    return stand_in::tally().begun || stand_in::asked("no slots");
}

void nwt_2d_radix8_forward_inplace(std::uint64_t* inout, const DNTTTable& tables,
                                   std::size_t count, std::size_t start, const cudaStream_t&) {
    if (left_out(tables, count)) {
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
    if (left_out(tables, count - (end - begin))) {
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
    if (left_out(tables, count)) {
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
    if (left_out(log_n)) {
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
    if (left_out(log_n)) {
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
