#include "programs.hpp"

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/parameters.hpp"

namespace conformance {
namespace {

using atlasc::Interface;
using atlasc::Moduli;
namespace bootstrapping = atlasc::bootstrapping;

Interface with(const atlasc::Parameters& parameters) {
    Interface interface{"conformance", std::string(64, '0'), parameters, {}, {}, {}, {}};
    interface.keys.relinearisation_level = parameters.max_level;
    interface.keys.conjugation_level = parameters.max_level;
    return interface;
}

}  // namespace

Interface leveled(int log_degree, int levels, int special_primes) {
    Moduli moduli{{57}, std::vector<int>(static_cast<std::size_t>(special_primes), 60), 46, ""};
    moduli.primes.insert(moduli.primes.end(), static_cast<std::size_t>(levels), 46);
    const std::size_t slots = std::size_t{1} << (log_degree - 1);
    Interface interface = with({slots, levels, std::nullopt, 1, moduli});
    interface.keys.rotations = {
        {1, levels}, {5, levels}, {64, levels}, {slots - 1, levels}, {7, 1}};
    return interface;
}

Interface bootstrapped(int log_degree, const std::string& name) {
    const auto set = bootstrapping::named(name, 1L << log_degree);
    const bootstrapping::Budget budget = bootstrapping::budget(set);
    const Moduli moduli{budget.prime_bits,
                        std::vector<int>(static_cast<std::size_t>(set.special_primes),
                                         set.special_bits),
                        set.scale_bits, name};
    const std::size_t slots = std::size_t{1} << (log_degree - 1);
    Interface interface = with({slots, set.levels_left, set.levels_left, 2, moduli});
    interface.keys.rotations = bootstrapping::Bootstrap(set).rotations();
    for (const std::size_t amount : {1, 64}) {
        interface.keys.rotations.try_emplace(amount, set.levels_left);
    }
    return interface;
}

}  // namespace conformance
