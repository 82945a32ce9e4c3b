// Ciphertexts of the simulation as bytes: identity of the key, level, slots.
#include <algorithm>
#include <cstring>

#include "sim_engine.hpp"
#include "slots.hpp"

namespace atlasc::sim {

std::size_t SimEngine::saved_size(int) const {
    return key_.size() + sizeof(std::int32_t) + slots() * sizeof(Complex);
}

Bytes SimEngine::save(const Ciphertext& x) const {
    const Slots& slots = of(x);
    const std::int32_t level = slots.level;
    Bytes bytes(key_.begin(), key_.end());
    const auto* start = reinterpret_cast<const std::uint8_t*>(&level);
    bytes.insert(bytes.end(), start, start + sizeof level);
    start = reinterpret_cast<const std::uint8_t*>(slots.values.data());
    bytes.insert(bytes.end(), start, start + slots.values.size() * sizeof(Complex));
    return bytes;
}

Ciphertext SimEngine::load(const Bytes& bytes) const {
    std::int32_t level = 0;
    ComplexVector values(slots());
    const std::size_t data = values.size() * sizeof(Complex);
    if (bytes.size() != saved_size(level)) {
        throw Error("a ciphertext is damaged, or was made with other parameters");
    }
    if (!std::equal(key_.begin(), key_.end(), bytes.begin())) {
        throw Error("a ciphertext belongs to other keys", "",
                    "use the keys that the query was encrypted with");
    }
    std::memcpy(&level, bytes.data() + key_.size(), sizeof level);
    std::memcpy(static_cast<void*>(values.data()), bytes.data() + key_.size() + sizeof level, data);
    if (level < 0 || level > std::max(parameters_.max_level,
                                      parameters_.bootstrap_level.value_or(0))) {
        throw Error("a ciphertext is damaged", "it is at no level of the parameters");
    }
    return std::make_shared<Slots>(std::move(values), level);
}

}  // namespace atlasc::sim
