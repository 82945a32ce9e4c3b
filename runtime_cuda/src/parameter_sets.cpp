#include "atlasc/parameter_sets.hpp"

#include "atlasc/base/error.hpp"

namespace atlasc {

KeyPlan ParameterSet::keys_with(const std::vector<std::size_t>& amounts) const {
    KeyPlan all = keys;
    for (const std::size_t amount : amounts) {
        all.rotations.try_emplace(amount, parameters.max_level);
    }
    return all;
}

ParameterSet read_parameter_set(const TensorFile& file) {
    const auto integers = [&file](const std::string& name, std::size_t least) {
        const Vector values = file.tensor(name).values;
        if (values.size() < least) {
            throw Error(file.name() + " is damaged", "the file has too few " + name,
                        "write the file again");
        }
        return std::vector<int>(values.begin(), values.end());
    };
    const int level = integers("level", 1)[0];
    const Moduli moduli{integers("primes", 1), integers("special", 1), integers("scale", 1)[0],
                        file.tensor("log_scales").values};
    const auto slots = static_cast<std::size_t>(integers("slots", 1)[0]);
    const std::vector<int> keys = integers("keys", 2);
    ParameterSet set{file.fact("set"), {slots, level, level, 2, moduli}, {{}, keys[0], keys[1]},
                     std::make_shared<Record>(file)};
    const std::vector<int> rotations = integers("rotations", 0);
    for (std::size_t at = 0; at + 1 < rotations.size(); at += 2) {
        set.keys.rotations.emplace(rotations[at], rotations[at + 1]);
    }
    return set;
}

}  // namespace atlasc
