#include "ckks/ring/packing.hpp"

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// One word of a packed limb, from the residues that lie in it.
struct Pack {
    std::size_t bits;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        Word word = 0;
        for (std::size_t place = at * 64 / bits; place * bits < at * 64 + 64; ++place) {
            const std::size_t start = place * bits;
            word |= start < at * 64 ? in[place] >> (at * 64 - start)
                                    : in[place] << (start - at * 64);
        }
        out[at] = word;
    }
};

/// The residues of a packed limb.
struct Unpack {
    std::size_t bits;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const { out[at] = unpacked(in, bits, at); }
};

}  // namespace

Packing::Packing(const Chain& chain, std::size_t limbs, std::size_t special)
    : limbs(limbs), special(special), log_degree(0), starts{} {
    while (std::size_t{1} << log_degree < chain.degree) {
        ++log_degree;
    }
    for (std::size_t limb = 0; limb < extended(); ++limb) {
        const Prime& q = limb < limbs ? chain.q[limb] : chain.special[limb - limbs];
        starts[limb + 1] = starts[limb] + static_cast<std::uint32_t>(bits_of(q));
    }
}

void pack(const Packing& packing, const Word* in, Word* out) {
    for (std::size_t limb = 0; limb < packing.extended(); ++limb) {
        const std::size_t bits = packing.bits(limb);
        launch(bits << (packing.log_degree - 6),
               Pack{bits, in + (limb << packing.log_degree), out + packing.start(limb)},
               "packed residues");
    }
}

void unpack(const Packing& packing, const Word* in, Word* out) {
    for (std::size_t limb = 0; limb < packing.extended(); ++limb) {
        launch(std::size_t{1} << packing.log_degree,
               Unpack{packing.bits(limb), in + packing.start(limb),
                      out + (limb << packing.log_degree)},
               "unpacked residues");
    }
}

bool is_reduced(const Chain& chain, const Packing& packing, const Word* words) {
    for (std::size_t limb = 0; limb < packing.extended(); ++limb) {
        const Prime& q =
            limb < packing.limbs ? chain.q[limb] : chain.special[limb - packing.limbs];
        for (std::size_t at = 0; at < chain.degree; ++at) {
            if (unpacked(words + packing.start(limb), packing.bits(limb), at) >= q.value) {
                return false;
            }
        }
    }
    return true;
}

}  // namespace atlasc::ckks
