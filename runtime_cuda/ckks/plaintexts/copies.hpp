// Arrays of a program on the device, for kernels that find the elements of plaintexts.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "atlasc/gather.hpp"
#include "ckks/ring/device.hpp"

namespace atlasc::ckks {

/// Copies of elements and tables, each made at its first use. It is let go once what it is a copy of
/// ends, or the room is full, or memory is short; whoever holds it keeps it.
class Copies {
public:
    struct Copy {
        Array<char> bytes;
        bool floats;     ///< every element is a number of 32 bits, and is kept so
        double largest;  ///< of the elements; no number where one is none
    };
    using Held = std::shared_ptr<const Copy>;

    /// `room`: device memory in bytes. Buffers of `staging` have `buffer` bytes.
    Copies(Memory& memory, std::uint64_t room, Staging& staging, std::size_t buffer)
        : memory_(memory), room_(room), staging_(staging), buffer_(buffer) {}

    /// Null where it has no room. One thread at a time asks.
    Held of(const Elements& elements);
    Held of(const Table& table);

    /// Any thread may ask, at any time.
    void clear();

private:
    using Key = std::weak_ptr<const void>;  ///< the life of what was copied
    using Uses = std::list<Key>;            ///< the latest first
    struct Entry {
        Held copy;
        Uses::iterator use;
    };

    template <typename Make>
    Held found_or(const Life& life, std::size_t bytes, const Make& make);
    /// Sends numbers as those of another type; nothing where one would change.
    template <typename Number>
    std::optional<Copy> sent(const Vector& numbers);

    Memory& memory_;
    std::uint64_t room_;
    Staging& staging_;
    std::size_t buffer_;
    std::mutex mutex_;  ///< over what follows; nobody allocates under it
    std::map<Key, Entry, std::owner_less<Key>> entries_;
    Uses uses_;
    std::uint64_t used_ = 0;
};

}  // namespace atlasc::ckks
