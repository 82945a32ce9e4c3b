// Ciphertexts of the simulation as bytes: identity of the key, a note, level, slots.
#include <algorithm>
#include <cstring>

#include "sim_engine.hpp"
#include "slots.hpp"

namespace atlasc::sim {

std::size_t saved_size(std::size_t slots) {
    return identity_size + note.size() + sizeof(std::int32_t) + slots * sizeof(Complex);
}

std::size_t SimEngine::saved_size(int, bool) const { return sim::saved_size(slots()); }

Bytes SimEngine::save(const Ciphertext& x) const {
    const Slots& slots = of(x);
    const std::int32_t level = slots.level;
    Bytes bytes(saved_size(level, false));
    std::uint8_t* at = std::copy(key_.begin(), key_.end(), bytes.data());
    at = std::copy(note.begin(), note.end(), at);
    std::memcpy(at, &level, sizeof level);
    std::memcpy(at + sizeof level, slots.values.data(), slots.values.size() * sizeof(Complex));
    return bytes;
}

Ciphertext SimEngine::load(const Bytes& bytes) const {
    std::int32_t level = 0;
    ComplexVector values(slots());
    if (bytes.size() != saved_size(level, false)) {
        throw Error("a ciphertext is damaged, or was made with other parameters");
    }
    const std::uint8_t* at = bytes.data();
    if (!std::equal(key_.begin(), key_.end(), at)) {
        throw Error("a ciphertext belongs to other keys", "",
                    "use the keys that the query was encrypted with");
    }
    at += key_.size();
    if (!std::equal(note.begin(), note.end(), at)) {
        throw Error("a ciphertext is damaged", "it does not say that it is a simulation");
    }
    at += note.size();
    std::memcpy(&level, at, sizeof level);
    std::memcpy(static_cast<void*>(values.data()), at + sizeof level,
                values.size() * sizeof(Complex));
    if (level < 0 || level > std::max(parameters_.max_level,
                                      parameters_.bootstrap_level.value_or(0))) {
        throw Error("a ciphertext is damaged", "it is at no level of the parameters");
    }
    return std::make_shared<Slots>(std::move(values), level);
}

}  // namespace atlasc::sim
