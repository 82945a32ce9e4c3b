#include "programs.hpp"

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/parameter_sets.hpp"

namespace conformance {
namespace {

using atlasc::Interface;
using atlasc::Moduli;
using atlasc::TensorFile;

Interface with(const atlasc::Parameters& parameters) {
    Interface interface{"conformance", std::string(64, '0'), parameters, {}, {}, {}, {}};
    interface.keys.relinearisation_level = parameters.max_level;
    interface.keys.conjugation_level = parameters.max_level;
    return interface;
}

}  // namespace

Interface leveled(int log_degree, int levels, int special_primes) {
    Moduli moduli{{57}, std::vector<int>(static_cast<std::size_t>(special_primes), 60), 46, {}};
    moduli.primes.insert(moduli.primes.end(), static_cast<std::size_t>(levels), 46);
    const std::size_t slots = std::size_t{1} << (log_degree - 1);
    Interface interface = with({slots, levels, std::nullopt, 1, moduli});
    interface.keys.rotations = {
        {1, levels}, {5, levels}, {64, levels}, {slots - 1, levels}, {7, 1}};
    return interface;
}

atlasc::Vector repeated(const atlasc::Vector& slots, std::size_t period) {
    atlasc::Vector result(slots.size());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        result[slot] = slots[slot % period];
    }
    return result;
}

Bootstrapped bootstrapped(const std::string& path) {
    const atlasc::ParameterSet set = atlasc::read_parameter_set(TensorFile(path));
    Interface interface = with(set.parameters);
    interface.keys = set.keys_with({1, 64});
    return {interface, set.bootstrap, set.name};
}

}  // namespace conformance
