#include "ckks/ring.hpp"

#include <algorithm>
#include <string>

#include "atlasc/error.hpp"

namespace atlasc::ckks {

Ring::Ring(Memory& memory, Chain chain)
    : memory_(memory), chain_(std::move(chain)), host_primes_(chain_.q) {
    while ((std::size_t{1} << log_degree_) < degree()) {
        ++log_degree_;
    }
    host_primes_.insert(host_primes_.end(), chain_.special.begin(), chain_.special.end());
    primes_ = uploaded(memory_, host_primes_);
    transforms_ = std::make_unique<Transforms>(memory_, log_degree_, host_primes_, size_p());
    make_constants();
    check_transforms();
}

Ring::~Ring() = default;

void Ring::forward(Word* limb, std::size_t count, std::size_t first) const {
    transforms_->forward(limb, count, first);
}

void Ring::forward_extended(Word* polynomial, std::size_t limbs, std::size_t begin,
                            std::size_t end) const {
    transforms_->forward_extended(polynomial, limbs, begin, end);
}

void Ring::backward(Word* out, const Word* in, std::size_t count, std::size_t first) const {
    transforms_->backward(out, in, count, first);
}

void Ring::make_constants() {
    const std::size_t all = size_qp();
    // Block first + count - 1 belongs to the digit that begins at `first` and has `count` primes,
    // the last block to the special primes.
    std::vector<Word> blocks((size_q() + 1) * block_words(), 0);
    const auto fill = [&](Word* words, std::size_t first, std::size_t count) {
        for (std::size_t s = 0; s < count; ++s) {
            const Prime& own = host_primes_[first + s];
            Word product = 1;
            for (std::size_t other = 0; other < count; ++other) {
                if (other != s) {
                    const Word q = reduce(host_primes_[first + other].value, own);
                    product = multiply(product, q, own);
                }
            }
            words[s] = inverse(product, own);
        }
        for (std::size_t at = 0; at < all; ++at) {
            const Prime& target = host_primes_[at];
            Word whole = 1;
            for (std::size_t s = 0; s < count; ++s) {
                Word hat = 1;
                for (std::size_t other = 0; other < count; ++other) {
                    const Word q = reduce(host_primes_[first + other].value, target);
                    hat = other == s ? hat : multiply(hat, q, target);
                }
                words[most + s * all + at] = hat;
                whole = multiply(whole, reduce(host_primes_[first + s].value, target), target);
            }
            words[most + most * all + at] = negate(whole, target);
        }
    };
    for (std::size_t digit = 0; digit + 1 < chain_.digits.size(); ++digit) {
        const std::size_t first = chain_.digits[digit];
        for (std::size_t end = first + 1; end <= chain_.digits[digit + 1]; ++end) {
            fill(&blocks[(end - 1) * block_words()], first, end - first);
        }
    }
    fill(&blocks[blocks.size() - block_words()], size_q(), size_p());
    blocks_ = uploaded(memory_, blocks);

    std::vector<Word> of_primes(size_q() * size_q(), 0);
    std::vector<Word> of_special;
    std::vector<Word> of_first;
    for (std::size_t at = 0; at < size_q(); ++at) {
        const Prime& q = host_primes_[at];
        for (std::size_t last = at + 1; last < size_q(); ++last) {
            of_primes[last * size_q() + at] = inverse(reduce(host_primes_[last].value, q), q);
        }
        Word product = 1;
        for (const Prime& p : chain_.special) {
            product = multiply(product, reduce(p.value, q), q);
        }
        special_product_.push_back(product);
        of_special.push_back(inverse(product, q));
        of_first.push_back(inverse(reduce(chain_.special[0].value, q), q));
    }
    inverse_of_primes_ = uploaded(memory_, of_primes);
    inverse_of_special_ = uploaded(memory_, of_special);
    inverse_of_first_special_ = uploaded(memory_, of_first);
}

BlockConstants Ring::block(std::size_t number, std::size_t first, std::size_t size) const {
    const Word* words = blocks_.get() + number * block_words();
    const Word* hats = words + most;
    return {words, hats, hats + most * size_qp(), first, size};
}

BlockConstants Ring::digit(std::size_t number, std::size_t limbs) const {
    const std::size_t first = chain_.digits[number];
    const std::size_t end = std::min(chain_.digits[number + 1], limbs);
    return block(end - 1, first, end - first);
}

BlockConstants Ring::special() const {
    return block(size_q(), size_q(), size_p());
}

const Word* Ring::inverse_of_prime(std::size_t last) const {
    return inverse_of_primes_.get() + last * size_q();
}

void Ring::check_transforms() const {
    // The transform of X lists the roots of unity in the order that `permuted` relies on.
    std::vector<Word> x(degree(), 0);
    x[1] = 1;
    Words limb = uploaded(memory_, x);
    forward(limb.get(), 1);
    const std::vector<Word> values = downloaded(limb.get(), degree());
    backward(limb.get(), limb.get(), 1);
    const Prime& q = host_primes_[0];
    const Word root = transforms_->root();
    const Word square = multiply(root, root, q);
    std::vector<Word> expected(degree());
    Word power = root;
    for (std::size_t at = 0; at < degree(); ++at) {
        expected[reverse_bits(static_cast<std::uint32_t>(at), log_degree_)] = power;
        power = multiply(power, square, q);
    }
    if (values != expected || downloaded(limb.get(), degree()) != x) {
        throw Error("the transform of this build is not the expected one",
                    "a library was built for other GPUs, or is another version",
                    "build it as docs/backend-phantom.md says");
    }
}

}  // namespace atlasc::ckks
