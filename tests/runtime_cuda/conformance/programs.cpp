#include "programs.hpp"

#include "atlasc/base/tensor_file.hpp"

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
    const TensorFile file(path);
    const auto integers = [&file](const char* name) {
        const atlasc::Vector values = file.tensor(name).values;
        return std::vector<int>(values.begin(), values.end());
    };
    const int level = integers("level").at(0);
    const Moduli moduli{integers("primes"), integers("special"), integers("scale").at(0),
                        file.tensor("log_scales").values};
    Interface interface = with(
        {static_cast<std::size_t>(integers("slots").at(0)), level, level, 2, moduli});
    interface.keys.relinearisation_level = integers("keys").at(0);
    interface.keys.conjugation_level = integers("keys").at(1);
    const std::vector<int> rotations = integers("rotations");
    for (std::size_t at = 0; at + 1 < rotations.size(); at += 2) {
        interface.keys.rotations.emplace(rotations[at], rotations[at + 1]);
    }
    for (const std::size_t amount : {1, 64}) {
        interface.keys.rotations.try_emplace(amount, level);
    }
    return {interface, std::make_shared<atlasc::Record>(file), file.fact("set")};
}

}  // namespace conformance
