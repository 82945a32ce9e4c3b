// The numbers of a plaintext, each computed from its slot alone: by the host, and by kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "atlasc/base/qualifiers.hpp"
#include "atlasc/base/tensor_file.hpp"

namespace atlasc {

/// Entry of a table where a lookup is zero.
constexpr std::int32_t nowhere = -1;

/// Ends with what owns it: so long a device may keep a copy. No two are equal.
using Life = std::shared_ptr<const void>;
inline Life new_life() { return std::make_shared<char>(); }

/// An integer for each run of neighbouring slots, all runs equally long. The integers are repeated
/// a given number of times.
struct Table {
    Table(std::vector<std::int32_t> numbers, std::size_t repeats);

    std::vector<std::int32_t> numbers;
    std::size_t repeats;
    std::int32_t least;
    std::int32_t most;
    Life life = new_life();
};

/// What a lookup finds its element in. The numbers stay as they are as long as they live.
struct Elements {
    const Vector* numbers = nullptr;
    const Life* life = nullptr;
};

/// A sum of terms. A term is a factor times lookups. A lookup is the element at the sum of some
/// tables' entries, or zero. Every pointer leads to where the numbers are computed.
struct Gathered {
    /// A rotated table, whose entries repeat.
    struct Place {
        const std::int32_t* numbers;
        std::uint32_t start;
        std::uint32_t mask;
        std::uint32_t shift;

        ATLASC_DEVICE std::int32_t of(std::uint32_t slot) const {
            return numbers[((slot + start) & mask) >> shift];
        }
    };

    enum class Kind : std::uint32_t {
        one,  ///< in place of an element
        doubles,
        floats,
        roots,  ///< complex numbers, in turn
    };

    struct Lookup {
        const void* elements;
        std::uint64_t size;  ///< elements
        const Place* places;
        std::uint32_t count;  ///< of places
        Kind kind;

        /// Where the element is; `nowhere` for none.
        ATLASC_DEVICE std::int64_t place(std::uint32_t slot) const {
            std::int64_t sum = 0;
            for (std::uint32_t at = 0; at < count; ++at) {
                const std::int32_t found = places[at].of(slot);
                if (found == nowhere) {
                    return nowhere;
                }
                sum += found;
            }
            return sum;
        }

        ATLASC_DEVICE double element(std::int64_t at) const {
            return kind == Kind::doubles  ? static_cast<const double*>(elements)[at]
                   : kind == Kind::floats ? static_cast<const float*>(elements)[at]
                                          : 1.0;
        }
    };

    struct Number {
        double real;
        double imaginary;

        ATLASC_DEVICE Number operator*(const Number& other) const {
            return {rounded_product(real, other.real) - rounded_product(imaginary, other.imaginary),
                    rounded_product(real, other.imaginary) +
                        rounded_product(imaginary, other.real)};
        }
    };

    using Roots = std::vector<Number>;

    struct Term {
        Number factor;
        const Lookup* lookups;
        std::uint32_t count;
        std::uint32_t is_complex;
    };

    const Term* terms;
    std::uint64_t count;

    ATLASC_DEVICE Number operator()(std::uint32_t slot) const {
        Number sum{0.0, 0.0};
        for (std::uint64_t term = 0; term < count; ++term) {
            const Term& own = terms[term];
            double product = 1.0;
            Number roots{1.0, 0.0};
            for (std::uint32_t at = 0; at < own.count; ++at) {
                const Lookup& lookup = own.lookups[at];
                const std::int64_t place = lookup.place(slot);
                if (place == nowhere) {
                    product = 0.0;
                } else if (lookup.kind == Kind::roots) {
                    roots = roots * static_cast<const Number*>(lookup.elements)
                                        [static_cast<std::uint64_t>(place) % lookup.size];
                } else {
                    product *= lookup.element(place);
                }
            }
            const Number factor = own.is_complex != 0 ? own.factor * roots : own.factor;
            sum.real += rounded_product(factor.real, product);
            if (own.is_complex != 0) {
                sum.imaginary += rounded_product(factor.imaginary, product);
            }
        }
        return sum;
    }
};

/// A `Gathered` with what it points to, all on the host. Every place that it leads to is inside its
/// elements.
struct GatherPlan {
    std::vector<Gathered::Term> terms;
    std::vector<Gathered::Lookup> lookups;  ///< of all terms
    std::vector<Gathered::Place> places;    ///< of all lookups
    std::vector<Elements> elements;       ///< of each lookup; null for ones and roots
    std::vector<const Table*> tables;     ///< of each place
    std::size_t count = 0;                ///< of numbers: the first of each run, in one period
    std::size_t run = 1;
    bool is_complex = false;
    std::shared_ptr<const Gathered::Roots> roots;  ///< of all lookups that find some; null for none

    /// Points to itself.
    Gathered gather();

    /// Itself as bytes that lie at `address`, where its parts point to; 8 of them are a word.
    std::size_t words() const;
    void write(void* to, const void* address) const;
};

}  // namespace atlasc
