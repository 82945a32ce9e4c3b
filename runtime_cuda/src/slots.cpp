// Slots of plaintexts, from their descriptors.
#include <algorithm>
#include <numeric>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/record.hpp"

namespace atlasc {
namespace {

/// How the slots of a plaintext come about: `run` neighbours are equal, and `period` slots repeat.
struct Grid {
    std::size_t size;
    std::size_t run;
    std::size_t period;

    /// Numbers to compute.
    std::size_t count() const { return period / run; }
};

/// That of which every table, however rotated, is.
Grid common_grid(const SlotsRecord& slots, std::size_t size) {
    std::size_t run = size;
    std::size_t period = 1;
    for (const Term& term : slots.terms) {
        for (const Lookup& lookup : term.lookups) {
            for (const PlaceOf& place : lookup.places) {
                const auto& [numbers, repeats] = *place.table;
                if (repeats > size) {
                    refuse_record("a table repeats more often than there are slots");
                }
                run = std::gcd(run, run_of(numbers.size() * repeats, size, "a lookup"));
                run = std::gcd(run, static_cast<std::size_t>(std::labs(place.rotation)));
                period = std::max(period, size / repeats);
            }
        }
    }
    return {size, run, std::max(period, run)};
}

/// Where each run finds its element; `nowhere` for none.
std::vector<std::int32_t> places_of(const Lookup& lookup, const Grid& grid) {
    const auto [size, run, _] = grid;
    std::vector<std::int32_t> places(grid.count(), 0);
    for (const auto& [table, rotation] : lookup.places) {
        const std::size_t period = size / table->repeats;
        int shift = 0;  // of a slot to its place in the table
        while (table->numbers.size() << shift < period) {
            ++shift;
        }
        const std::int32_t* numbers = table->numbers.data();
        std::size_t slot = static_cast<std::size_t>(rotation) & (size - 1);
        for (std::int32_t& place : places) {
            const std::int32_t found = numbers[(slot & (period - 1)) >> shift];
            place = found == nowhere || place == nowhere ? nowhere : place + found;
            slot = (slot + run) & (size - 1);
        }
    }
    return places;
}

/// Multiplies by the elements that a lookup finds.
void multiply(Vector& product, const Lookup& lookup, const Grid& grid, Arrays& arrays) {
    using Source = Lookup::Source;
    const std::vector<std::int32_t> places = places_of(lookup, grid);
    const Vector* values = lookup.source == Source::mask ? nullptr : &arrays.of(lookup);
    for (std::size_t at = 0; at < product.size(); ++at) {
        if (places[at] == nowhere) {
            product[at] = 0.0;
        } else if (values != nullptr) {
            if (static_cast<std::size_t>(places[at]) >= values->size()) {
                refuse_record("an array has fewer elements than a lookup wants");
            }
            product[at] *= (*values)[static_cast<std::size_t>(places[at])];
        }
    }
}

/// exp(2 pi i k / order) for all k.
ComplexVector roots_of(std::size_t order) {
    ComplexVector roots(order);
    for (std::size_t k = 0; k < order; ++k) {
        roots[k] = std::polar(1.0, 2.0 * pi * static_cast<double>(k) / static_cast<double>(order));
    }
    return roots;
}

/// Multiplies by the roots that a lookup finds; the product becomes complex.
void turn(ComplexVector& turned, Vector& product, const Lookup& lookup, const Grid& grid) {
    // One order after another: a program has one.
    thread_local ComplexVector roots;
    if (roots.size() != lookup.argument) {
        roots = roots_of(lookup.argument);
    }
    turned.resize(product.size(), 1.0);
    const std::vector<std::int32_t> places = places_of(lookup, grid);
    for (std::size_t at = 0; at < product.size(); ++at) {
        if (places[at] == nowhere) {
            product[at] = 0.0;
        } else {
            turned[at] *= roots[static_cast<std::size_t>(places[at]) % roots.size()];
        }
    }
}

}  // namespace

void refuse_record(const std::string& why) {
    throw Error("the record of a program does not fit", why, "emit the project again");
}

std::size_t period_of(const SlotsRecord& slots, std::size_t size) {
    return common_grid(slots, size).period;
}

Numbers built(const SlotsRecord& slots, std::size_t size, Arrays& arrays) {
    const Grid grid = common_grid(slots, size);
    Vector real(grid.count(), 0.0);
    Vector imaginary;
    for (const Term& term : slots.terms) {
        Vector product(grid.count(), 1.0);
        ComplexVector turned;  // of roots; empty: all 1
        for (const Lookup& lookup : term.lookups) {
            if (lookup.source == Lookup::Source::root) {
                turn(turned, product, lookup, grid);
            } else {
                multiply(product, lookup, grid, arrays);
            }
        }
        if (term.factor.imag() == 0.0 && turned.empty()) {
            for (std::size_t at = 0; at < product.size(); ++at) {
                real[at] += term.factor.real() * product[at];
            }
            continue;
        }
        imaginary.resize(grid.count(), 0.0);
        for (std::size_t at = 0; at < product.size(); ++at) {
            const std::complex<double> factor =
                turned.empty() ? term.factor : term.factor * turned[at];
            real[at] += factor.real() * product[at];
            imaginary[at] += factor.imag() * product[at];
        }
    }
    if (imaginary.empty()) {
        return real;
    }
    ComplexVector both(real.size());
    for (std::size_t at = 0; at < both.size(); ++at) {
        both[at] = {real[at], imaginary[at]};
    }
    return both;
}

}  // namespace atlasc
