#include "atlasc/layout.hpp"

#include <algorithm>

#include "atlasc/base/error.hpp"

namespace atlasc {
namespace {

constexpr int max_slot_bits = 40;

std::size_t bit(int position) { return std::size_t{1} << position; }

std::size_t digit(std::size_t index, const Field& field) {
    return (index >> field.low) & (bit(field.bits) - 1);
}

}  // namespace

Layout::Layout(std::vector<Field> fields, std::vector<Field> outer, Extents extents)
    : fields_(std::move(fields)), outer_(std::move(outer)), extents_(std::move(extents)) {
    int bits = 0;
    for (const Field& field : fields_) {
        bits += field.bits;
    }
    if (bits > max_slot_bits) {
        throw Error("a layout has too many slots");
    }
    slots_ = bit(bits);
}

std::size_t Layout::extent(char axis) const {
    for (const auto& [name, extent] : extents_) {
        if (name == axis) {
            return extent;
        }
    }
    return 1;
}

std::vector<std::size_t> Layout::shape() const {
    std::vector<std::size_t> result;
    for (const auto& named : extents_) {
        result.push_back(named.second);
    }
    return result;
}

std::string Layout::axes() const {
    std::string result;
    for (const auto& named : extents_) {
        result += named.first;
    }
    return result;
}

std::size_t Layout::outer_radix(const Field& field) const {
    const std::size_t used = (extent(field.axis) + bit(field.low) - 1) >> field.low;
    return std::min(bit(field.bits), used);
}

std::size_t Layout::ciphertexts() const {
    std::size_t count = 1;
    for (const Field& field : outer_) {
        count *= outer_radix(field);
    }
    return count;
}

bool Layout::has(char axis) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [axis](const Field& field) { return field.axis == axis; });
}

int Layout::offset(std::size_t position) const {
    int bits = 0;
    for (std::size_t after = position + 1; after < fields_.size(); ++after) {
        bits += fields_[after].bits;
    }
    return bits;
}

Place Layout::place(char axis, std::size_t index) const {
    Place place{0, 0};
    for (const Field& field : outer_) {
        place.ciphertext *= outer_radix(field);
        if (field.axis == axis) {
            place.ciphertext += digit(index, field);
        }
    }
    for (const Field& field : fields_) {
        place.slot <<= field.bits;
        if (field.axis == axis) {
            place.slot += digit(index, field);
        }
    }
    return place;
}

Layout Layout::padded(const std::string& axes) const {
    Extents grown = extents_;
    for (auto& [axis, extent] : grown) {
        if (axes.find(axis) != std::string::npos) {
            int bits = 0;
            for (const Field& field : fields_) {
                bits += field.axis == axis ? field.bits : 0;
            }
            extent = (extent + bit(bits) - 1) / bit(bits) * bit(bits);
        }
    }
    return {fields_, outer_, grown};
}

std::vector<std::size_t> Layout::replicas() const {
    std::vector<std::size_t> offsets = {0};
    for (std::size_t position = 0; position < fields_.size(); ++position) {
        if (fields_[position].axis != replicated) {
            continue;
        }
        std::vector<std::size_t> more;
        for (std::size_t copy = 0; copy < bit(fields_[position].bits); ++copy) {
            for (const std::size_t before : offsets) {
                more.push_back(before + (copy << offset(position)));
            }
        }
        offsets = std::move(more);
    }
    return offsets;
}

std::vector<std::vector<Place>> Layout::places() const {
    std::vector<std::vector<Place>> result;
    for (const auto& [axis, extent] : extents_) {
        std::vector<Place> along;
        for (std::size_t index = 0; index < extent; ++index) {
            along.push_back(place(axis, index));
        }
        result.push_back(std::move(along));
    }
    return result;
}

std::vector<Vector> Layout::pack(const Tensor& tensor, const std::string& repeat) const {
    const Layout full = padded(repeat);
    const std::size_t rank = extents_.size();
    const std::vector<std::size_t> copies = full.replicas();
    const std::vector<std::vector<Place>> places = full.places();
    std::vector<Vector> packed(ciphertexts(), Vector(slots_, 0.0));
    if (tensor.shape.size() > rank) {
        throw Error("a constant has more axes than its layout");
    }
    // Distance between neighbours in the tensor along each axis; 0 where it broadcasts.
    std::vector<std::size_t> step(rank, 0);
    for (std::size_t size = 1, back = 0; back < tensor.shape.size(); ++back) {
        const std::size_t extent = tensor.shape[tensor.shape.size() - 1 - back];
        if (extent != 1 && extent != extents_[rank - 1 - back].second) {
            throw Error("a constant does not broadcast to its layout");
        }
        step[rank - 1 - back] = extent == 1 ? 0 : size;
        size *= extent;
    }
    std::vector<std::size_t> at(rank, 0);
    for (std::size_t left = count_of(full.shape()); left > 0; --left) {
        std::size_t source = 0;
        Place target{0, 0};
        for (std::size_t axis = 0; axis < rank; ++axis) {
            source += (at[axis] < extents_[axis].second ? at[axis] : 0) * step[axis];
            target.ciphertext += places[axis][at[axis]].ciphertext;
            target.slot += places[axis][at[axis]].slot;
        }
        for (const std::size_t copy : copies) {
            packed[target.ciphertext][target.slot + copy] = tensor.values[source];
        }
        for (std::size_t axis = rank; axis-- > 0 && ++at[axis] == full.extents_[axis].second;) {
            at[axis] = 0;
        }
    }
    return packed;
}

Tensor Layout::unpack(const std::vector<Vector>& packed) const {
    const std::vector<std::vector<Place>> places = this->places();
    Tensor tensor{shape(), {}};
    std::vector<std::size_t> at(extents_.size(), 0);
    for (std::size_t left = count_of(tensor.shape); left > 0; --left) {
        Place source{0, 0};
        for (std::size_t axis = 0; axis < at.size(); ++axis) {
            source.ciphertext += places[axis][at[axis]].ciphertext;
            source.slot += places[axis][at[axis]].slot;
        }
        tensor.values.push_back(packed.at(source.ciphertext).at(source.slot));
        for (std::size_t axis = at.size(); axis-- > 0 && ++at[axis] == extents_[axis].second;) {
            at[axis] = 0;
        }
    }
    return tensor;
}

}  // namespace atlasc
