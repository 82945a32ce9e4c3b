#include "atlasc/gather.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace atlasc {
namespace {

/// Points terms and lookups to what is theirs among all that begin at these places.
void link(std::vector<Gathered::Term>& terms, std::vector<Gathered::Lookup>& lookups,
          const Gathered::Lookup* first_lookup, const Gathered::Place* first_place) {
    for (Gathered::Term& term : terms) {
        term.lookups = first_lookup;
        first_lookup += term.count;
    }
    for (Gathered::Lookup& lookup : lookups) {
        lookup.places = first_place;
        first_place += lookup.count;
    }
}

}  // namespace

Table::Table(std::vector<std::int32_t> entries, std::size_t times)
    : numbers(std::move(entries)),
      repeats(times),
      least(*std::min_element(numbers.begin(), numbers.end())),
      most(*std::max_element(numbers.begin(), numbers.end())) {}

Gathered GatherPlan::gather() {
    link(terms, lookups, lookups.data(), places.data());
    return {terms.data(), terms.size()};
}

std::size_t GatherPlan::words() const {
    const std::size_t bytes = sizeof(Gathered) + terms.size() * sizeof(Gathered::Term) +
                              lookups.size() * sizeof(Gathered::Lookup) +
                              places.size() * sizeof(Gathered::Place);
    return (bytes + sizeof(double) - 1) / sizeof(double);
}

void GatherPlan::write(void* to, const void* address) const {
    const std::size_t of_terms = sizeof(Gathered);
    const std::size_t of_lookups = of_terms + terms.size() * sizeof(Gathered::Term);
    const std::size_t of_places = of_lookups + lookups.size() * sizeof(Gathered::Lookup);
    const auto* there = static_cast<const char*>(address);
    const Gathered gather{reinterpret_cast<const Gathered::Term*>(there + of_terms), terms.size()};
    std::vector<Gathered::Term> own_terms = terms;
    std::vector<Gathered::Lookup> own_lookups = lookups;
    link(own_terms, own_lookups, reinterpret_cast<const Gathered::Lookup*>(there + of_lookups),
         reinterpret_cast<const Gathered::Place*>(there + of_places));
    auto* here = static_cast<char*>(to);
    std::memcpy(here, &gather, sizeof gather);
    const auto put = [here](std::size_t start, const auto& all) {
        if (!all.empty()) {
            std::memcpy(here + start, all.data(), all.size() * sizeof all[0]);
        }
    };
    put(of_terms, own_terms);
    put(of_lookups, own_lookups);
    put(of_places, places);
}

}  // namespace atlasc
