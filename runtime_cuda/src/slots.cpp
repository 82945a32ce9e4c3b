// Slots of plaintexts, from their descriptors.
#include <algorithm>
#include <numeric>
#include <utility>

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
                const std::size_t repeats = place.table->repeats;
                if (repeats > size) {
                    refuse_record("a table repeats more often than there are slots");
                }
                run = std::gcd(run, run_of(place.table->numbers.size() * repeats, size, "a lookup"));
                run = std::gcd(run, static_cast<std::size_t>(std::labs(place.rotation)));
                period = std::max(period, size / repeats);
            }
        }
    }
    return {size, run, std::max(period, run)};
}

/// A table and its rotation, where a period divides the slots.
Gathered::Place place_of(const PlaceOf& place, std::size_t size) {
    const std::size_t period = size / place.table->repeats;
    std::uint32_t shift = 0;  // of a slot to its place in the table
    while (place.table->numbers.size() << shift < period) {
        ++shift;
    }
    return {place.table->numbers.data(), static_cast<std::uint32_t>(place.rotation),
            static_cast<std::uint32_t>(period - 1), shift};
}

/// exp(2 pi i k / order) for all k. One order after another: a program has one.
std::shared_ptr<const Gathered::Roots> roots_of(std::size_t order) {
    thread_local std::shared_ptr<const Gathered::Roots> known;
    if (known == nullptr || known->size() != order) {
        Gathered::Roots roots;
        for (std::size_t k = 0; k < order; ++k) {
            const double angle = 2.0 * pi * static_cast<double>(k) / static_cast<double>(order);
            const std::complex<double> root = std::polar(1.0, angle);
            roots.push_back({root.real(), root.imag()});
        }
        known = std::make_shared<const Gathered::Roots>(std::move(roots));
    }
    return known;
}

/// Refuses a lookup that leads outside its elements. Where the greatest entries of its tables do not
/// lead there, nothing does.
void require_inside(const Lookup& lookup, const Gathered::Lookup& gathered, const Grid& grid) {
    std::uint64_t most = 0;
    bool inside = true;
    for (const PlaceOf& place : lookup.places) {
        inside = inside && place.table->least >= nowhere;
        most += static_cast<std::uint64_t>(std::max(place.table->most, 0));
    }
    if (inside && most < gathered.size) {
        return;
    }
    for (std::size_t at = 0; at < grid.count(); ++at) {
        const std::int64_t place = gathered.place(static_cast<std::uint32_t>(at * grid.run));
        if (place != nowhere && static_cast<std::uint64_t>(place) >= gathered.size) {
            refuse_record("an array has fewer elements than a lookup wants");
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

GatherPlan plan_of(const SlotsRecord& slots, std::size_t size, Arrays& arrays) {
    using Source = Lookup::Source;
    const Grid grid = common_grid(slots, size);
    GatherPlan plan;
    plan.count = grid.count();
    plan.run = grid.run;
    for (const Term& term : slots.terms) {
        bool is_complex = term.factor.imag() != 0.0;
        for (const Lookup& lookup : term.lookups) {
            Gathered::Lookup found{nullptr, 0, nullptr,
                                 static_cast<std::uint32_t>(lookup.places.size()),
                                 Gathered::Kind::one};
            Elements elements{};
            if (lookup.source == Source::root) {
                if (plan.roots != nullptr && plan.roots->size() != lookup.argument) {
                    refuse_record("a plaintext has roots of two orders");
                }
                plan.roots = roots_of(lookup.argument);
                found.elements = plan.roots->data();
                found.size = plan.roots->size();
                found.kind = Gathered::Kind::roots;
                is_complex = true;
            } else if (lookup.source != Source::mask) {
                elements = arrays.of(lookup);
                found.elements = elements.numbers->data();
                found.size = elements.numbers->size();
                found.kind = Gathered::Kind::doubles;
            }
            plan.lookups.push_back(found);
            plan.elements.push_back(std::move(elements));
            for (const PlaceOf& place : lookup.places) {
                plan.places.push_back(place_of(place, size));
                plan.tables.push_back(place.table);
            }
        }
        plan.terms.push_back({{term.factor.real(), term.factor.imag()},
                              nullptr,
                              static_cast<std::uint32_t>(term.lookups.size()),
                              is_complex ? 1U : 0U});
        plan.is_complex = plan.is_complex || is_complex;
    }
    plan.gather();
    std::size_t next = 0;
    for (const Term& term : slots.terms) {
        for (const Lookup& lookup : term.lookups) {
            const Gathered::Lookup& gathered = plan.lookups[next++];
            if (gathered.kind == Gathered::Kind::doubles) {
                require_inside(lookup, gathered, grid);
            }
        }
    }
    return plan;
}

Numbers built(GatherPlan plan) {
    const Gathered gather = plan.gather();
    const auto number = [&](std::size_t at) {
        return gather(static_cast<std::uint32_t>(at * plan.run));
    };
    if (!plan.is_complex) {
        Vector real(plan.count);
        for (std::size_t at = 0; at < real.size(); ++at) {
            real[at] = number(at).real;
        }
        return real;
    }
    ComplexVector both(plan.count);
    for (std::size_t at = 0; at < both.size(); ++at) {
        const Gathered::Number found = number(at);
        both[at] = {found.real, found.imaginary};
    }
    return both;
}

}  // namespace atlasc
