#include "linear_stages.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>

#include "atlasc/error.hpp"
#include "atlasc/numbers.hpp"

namespace atlasc::bootstrapping {
namespace {

std::size_t wrap(long position, std::size_t slots) {
    // slots is a power of two, so that the mask is the residue for negative positions too.
    return static_cast<std::size_t>(position) & (slots - 1);
}

long nearest_offset(long offset, std::size_t slots) {
    const auto residue = static_cast<long>(wrap(offset, slots));
    const auto size = static_cast<long>(slots);
    return residue < size / 2 ? residue : residue - size;
}

void add_entry(SparseMatrix& matrix, std::size_t row, std::size_t column, Complex value) {
    const long offset =
        nearest_offset(static_cast<long>(column) - static_cast<long>(row), matrix.slots);
    Slots& diagonal = matrix.diagonals.try_emplace(offset, matrix.slots).first->second;
    diagonal[row] += value;
}

/// The butterfly on blocks of `length` slots, or its inverse.
SparseMatrix butterfly(std::size_t slots, std::size_t length, bool inverse) {
    SparseMatrix matrix{slots, {}};
    const std::size_t half = length / 2;
    std::uint64_t power_of_five = 1;  // 5^j modulo 4 length: the root of slot j, from 2N of them
    for (std::size_t j = 0; j < half; ++j) {
        const double turn = static_cast<double>(power_of_five) / static_cast<double>(4 * length);
        const Complex twiddle = std::polar(1.0, 2.0 * pi * turn);
        power_of_five = power_of_five * 5 % (4 * length);
        for (std::size_t top = j; top < slots; top += length) {
            const std::size_t bottom = top + half;
            if (inverse) {
                add_entry(matrix, top, top, 0.5);
                add_entry(matrix, top, bottom, 0.5);
                add_entry(matrix, bottom, top, 0.5 * std::conj(twiddle));
                add_entry(matrix, bottom, bottom, -0.5 * std::conj(twiddle));
            } else {
                add_entry(matrix, top, top, 1.0);
                add_entry(matrix, top, bottom, twiddle);
                add_entry(matrix, bottom, top, 1.0);
                add_entry(matrix, bottom, bottom, -twiddle);
            }
        }
    }
    return matrix;
}

int log2_slots(std::size_t slots) {
    int log = 0;
    while ((std::size_t{1} << log) < slots) {
        ++log;
    }
    return log;
}

void scale(std::vector<SparseMatrix>& stages, double factor) {
    // Equal parts keep the sizes of the plaintexts alike, and with them their rounding errors.
    const double part = std::pow(factor, 1.0 / static_cast<double>(stages.size()));
    for (SparseMatrix& stage : stages) {
        for (auto& [offset, diagonal] : stage.diagonals) {
            for (Complex& entry : diagonal) {
                entry *= part;
            }
        }
    }
}

std::size_t rotations(const std::set<long>& multiples, long count) {
    std::set<long> babies;
    std::set<long> giants;
    for (const long multiple : multiples) {
        const long baby = multiple & (count - 1);
        babies.insert(baby);
        giants.insert(multiple - baby);
    }
    return babies.size() - babies.count(0) + giants.size() - giants.count(0);
}

}  // namespace

Slots SparseMatrix::operator()(const Slots& z) const {
    Slots result(slots);
    for (const auto& [offset, diagonal] : diagonals) {
        for (std::size_t row = 0; row < slots; ++row) {
            result[row] += diagonal[row] * z[wrap(static_cast<long>(row) + offset, slots)];
        }
    }
    return result;
}

SparseMatrix operator*(const SparseMatrix& left, const SparseMatrix& right) {
    const std::size_t slots = left.slots;
    SparseMatrix product{slots, {}};
    for (const auto& [first, factors] : left.diagonals) {
        for (const auto& [second, rotated] : right.diagonals) {
            const long offset = nearest_offset(first + second, slots);
            Slots& sum = product.diagonals.try_emplace(offset, slots).first->second;
            for (std::size_t row = 0; row < slots; ++row) {
                sum[row] += factors[row] * rotated[wrap(static_cast<long>(row) + first, slots)];
            }
        }
    }
    return product;
}

std::vector<int> butterflies_per_stage(std::size_t slots, int stages) {
    if (slots < 2 || (slots & (slots - 1)) != 0) {
        throw Error("the number of slots must be a power of two, at least 2");
    }
    const int butterflies = log2_slots(slots);
    if (stages < 1 || stages > butterflies) {
        throw Error("the number of stages must be from 1 to log2(slots)");
    }
    std::vector<int> counts(static_cast<std::size_t>(stages), butterflies / stages);
    for (int stage = 0; stage < butterflies % stages; ++stage) {
        ++counts[static_cast<std::size_t>(stage)];
    }
    return counts;
}

std::vector<SparseMatrix> coeffs_to_slots(std::size_t slots, int stages, double factor) {
    std::vector<SparseMatrix> result;
    std::size_t length = slots;
    for (const int count : butterflies_per_stage(slots, stages)) {
        SparseMatrix stage = butterfly(slots, length, true);
        for (int i = 1; i < count; ++i) {
            stage = butterfly(slots, length >> i, true) * stage;
        }
        length >>= count;
        result.push_back(std::move(stage));
    }
    scale(result, factor);
    return result;
}

std::vector<SparseMatrix> slots_to_coeffs(std::size_t slots, int stages, double factor) {
    const std::vector<int> counts = butterflies_per_stage(slots, stages);
    std::vector<SparseMatrix> result;
    std::size_t length = 2;
    for (auto count = counts.rbegin(); count != counts.rend(); ++count) {
        SparseMatrix stage = butterfly(slots, length, false);
        for (int i = 1; i < *count; ++i) {
            stage = butterfly(slots, length << i, false) * stage;
        }
        length <<= *count;
        result.push_back(std::move(stage));
    }
    scale(result, factor);
    return result;
}

std::vector<GiantStep> baby_giant(const SparseMatrix& matrix) {
    long step = 0;
    for (const auto& [offset, diagonal] : matrix.diagonals) {
        step = std::gcd(step, offset);
    }
    if (step == 0) {  // nothing but the main diagonal
        step = 1;
    }
    std::set<long> multiples;
    for (const auto& [offset, diagonal] : matrix.diagonals) {
        multiples.insert(offset / step);
    }

    long count = 1;
    for (long candidate = 2; candidate <= static_cast<long>(matrix.slots); candidate *= 2) {
        if (rotations(multiples, candidate) <= rotations(multiples, count)) {
            count = candidate;
        }
    }

    std::map<std::size_t, std::map<std::size_t, Plaintext>> steps;
    for (const auto& [offset, diagonal] : matrix.diagonals) {
        const long baby = ((offset / step) & (count - 1)) * step;
        const long giant = offset - baby;
        Slots rotated(matrix.slots);
        for (std::size_t row = 0; row < matrix.slots; ++row) {
            rotated[row] = diagonal[wrap(static_cast<long>(row) - giant, matrix.slots)];
        }
        Deferred factor{new_identity(), [slots = std::move(rotated)] { return slots; }};
        steps[wrap(giant, matrix.slots)].emplace(wrap(baby, matrix.slots), std::move(factor));
    }
    std::vector<GiantStep> result;
    for (auto& [rotation, terms] : steps) {
        result.push_back({rotation, std::move(terms)});
    }
    return result;
}

}  // namespace atlasc::bootstrapping
