// Encoded plaintexts that a program uses more than once: diagonals of the bootstrap, masks.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "ckks/plaintexts/encoder.hpp"

namespace atlasc::ckks {

/// Kept from the second use on, so that the weights of linear layers, used once, take no room. When
/// the room is full, what was used longest ago goes. What is known to be used again stays: the masks
/// of an attention would drive out the diagonals of the bootstrap.
class PlaintextCache {
public:
    /// `room`: device memory in bytes.
    PlaintextCache(Encoder& encoder, std::uint64_t room) : encoder_(encoder), room_(room) {}

    /// As `Encoder::plains`. With `again`, what is known to be used again: it is kept at once, and
    /// stays, room or not.
    std::vector<std::shared_ptr<const Plain>> encoded(const std::vector<const Plaintext*>& values,
                                                      const std::vector<double>& scales,
                                                      std::size_t limbs, std::size_t special,
                                                      bool again);

    void clear();

private:
    /// Identity, scale, primes, special ones.
    using Key = std::tuple<std::uint64_t, double, std::size_t, std::size_t>;
    using Uses = std::list<Key>;  ///< the latest first
    struct Entry {
        std::shared_ptr<const Plain> plain;
        std::optional<Uses::iterator> use;  ///< nothing for what stays
    };

    /// Nothing for slots that do not say that they are used again.
    static std::optional<Key> key_of(const Plaintext& value, double scale, std::size_t limbs,
                                     std::size_t special);
    std::shared_ptr<const Plain> find(const Key& key);
    void store(const Key& key, const std::shared_ptr<const Plain>& plain, bool again);

    Encoder& encoder_;
    std::uint64_t room_;
    std::mutex mutex_;  ///< over what follows
    std::uint64_t used_ = 0;
    std::set<Key> seen_;
    std::map<Key, Entry> entries_;
    Uses uses_;
};

}  // namespace atlasc::ckks
