// Work of the engine that repeats with other ciphertexts: bootstraps.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "atlasc/engine.hpp"
#include "ckks/ring/ring.hpp"

namespace atlasc::ckks {

/// Where a launch costs the host time, a device records such work once, and launches it as one. Any
/// number of threads may use it.
class Repeated {
public:
    using Work = std::function<Ciphertexts(const Ciphertexts&)>;

    explicit Repeated(Memory& memory);
    Repeated(const Repeated&) = delete;
    Repeated& operator=(const Repeated&) = delete;
    ~Repeated();

    /// work(xs). For one ring, one kind and ciphertexts of one form it always asks the same of the
    /// device. Neither xs nor the results wait for anything (`CkksEngine::settle`). The ring lives as
    /// long as this does.
    Ciphertexts run(const Ring& ring, std::size_t kind, const Ciphertexts& xs, const Work& work);

    /// Gives all memory back, and records nothing any more: memory is short.
    void clear();

private:
    struct Records;

    std::unique_ptr<Records> records_;
};

/// Keeps what the launches that this thread records read, if it does, as long as they are launched.
void keep_for_graph(std::shared_ptr<const void> read);

}  // namespace atlasc::ckks
