// Where a kernel is a call, and where the transforms of a library allocate as they like: work that
// repeats is done again.
#include "ckks/repeated.hpp"

namespace atlasc::ckks {

struct Repeated::Records {};

Repeated::Repeated(Memory&) {}

Repeated::~Repeated() = default;

Ciphertexts Repeated::run(const Ring&, std::size_t, const Ciphertexts& xs, const Work& work) {
    return work(xs);
}

void Repeated::clear() {}

void keep_for_graph(std::shared_ptr<const void>) {}

}  // namespace atlasc::ckks
