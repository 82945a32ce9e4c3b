#include "ckks/ring/ring.hpp"

#include <algorithm>
#include <string>

#include "atlasc/base/error.hpp"

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
    Limbs limbs{count, first};
    limbs.add(limb, limb);
    transforms_->forward(limbs);
}

void Ring::backward(Word* out, const Word* in, std::size_t count, std::size_t first) const {
    Limbs limbs{count, first};
    limbs.add(out, in);
    transforms_->backward(limbs);
}

void Ring::make_constants() {
    const std::size_t all = size_qp();
    const std::size_t divisors = 2 * chain_.limbs.size();
    std::vector<Word> blocks((size_q() + divisors) * block_words(), 0);
    std::vector<Prime> own_primes((size_q() + divisors) * most_in_block);
    const auto product = [](const std::vector<Prime>& factors, const Prime& q) {
        Word result = 1;
        for (const Prime& factor : factors) {
            result = multiply(result, reduce(factor.value, q), q);
        }
        return result;
    };
    const auto fill = [&](std::size_t number, const std::vector<Prime>& own) {
        Word* words = &blocks[number * block_words()];
        Word* hats = words + most_in_block;
        std::copy(own.begin(), own.end(), &own_primes[number * most_in_block]);
        for (std::size_t s = 0; s < own.size(); ++s) {
            std::vector<Prime> others = own;
            others.erase(others.begin() + static_cast<std::ptrdiff_t>(s));
            words[s] = inverse(product(others, own[s]), own[s]);
            for (std::size_t at = 0; at < all; ++at) {
                hats[s * all + at] = product(others, host_primes_[at]);
            }
        }
        for (std::size_t at = 0; at < all; ++at) {
            const Prime& q = host_primes_[at];
            hats[most_in_block * all + at] = negate(product(own, q), q);
        }
    };
    const auto from = [&](std::size_t first, std::size_t end) {
        const auto start = host_primes_.begin();
        return std::vector<Prime>(start + static_cast<std::ptrdiff_t>(first),
                                  start + static_cast<std::ptrdiff_t>(end));
    };
    for (std::size_t digit = 0; digit + 1 < chain_.digits.size(); ++digit) {
        const std::size_t first = chain_.digits[digit];
        for (std::size_t end = first + 1; end <= chain_.digits[digit + 1]; ++end) {
            fill(end - 1, from(first, end));
        }
    }
    std::vector<Word> digit_inverses(size_q() * size_q(), 0);
    for (std::size_t limbs = 1; limbs <= size_q(); ++limbs) {
        for (std::size_t digit = 0; digit < digits(limbs); ++digit) {
            const std::size_t first = chain_.digits[digit];
            const std::size_t end = std::min(chain_.digits[digit + 1], limbs);
            std::copy_n(&blocks[(end - 1) * block_words()], end - first,
                        &digit_inverses[(limbs - 1) * size_q() + first]);
        }
    }
    std::vector<Word> inverses(divisors * size_q(), 0);
    for (int level = 0; level <= chain_.top(); ++level) {
        const std::size_t below = level == 0 ? 0 : chain_.limbs_at(level - 1);
        for (const bool special : {false, true}) {
            std::vector<Prime> own =
                level == 0 ? std::vector<Prime>() : from(below, chain_.limbs_at(level));
            if (special) {
                own.insert(own.end(), chain_.special.begin(), chain_.special.end());
            }
            const std::size_t number = divisor_number(level, special);
            fill(number, own);
            for (std::size_t at = 0; at < (level == 0 ? size_q() : below); ++at) {
                const Prime& q = host_primes_[at];
                inverses[(number - size_q()) * size_q() + at] = inverse(product(own, q), q);
            }
        }
    }
    blocks_ = uploaded(memory_, blocks);
    own_primes_ = uploaded(memory_, own_primes);
    std::vector<double> shares;
    for (const Prime& q : own_primes) {
        shares.push_back(1.0 / static_cast<double>(std::max(q.value, Word{1})));  // or unused
    }
    shares_ = uploaded(memory_, shares);
    inverses_ = uploaded(memory_, inverses);
    digit_inverses_ = uploaded(memory_, digit_inverses);
    for (const Prime& q : chain_.q) {
        special_product_.push_back(product(chain_.special, q));
    }
    special_products_ = uploaded(memory_, special_product_);
    const Prime& q0 = chain_.q[0];
    inverse_of_first_special_ = uploaded(
        memory_, std::vector<Word>{inverse(reduce(chain_.special[0].value, q0), q0)});
}

BlockConstants Ring::block(std::size_t number, std::size_t first, std::size_t size) const {
    const Word* words = blocks_.get() + number * block_words();
    const Word* hats = words + most_in_block;
    return {words, hats, hats + most_in_block * size_qp(),
            own_primes_.get() + number * most_in_block, shares_.get() + number * most_in_block,
            first, size};
}

BlockConstants Ring::digit(std::size_t number, std::size_t limbs) const {
    const std::size_t first = chain_.digits[number];
    const std::size_t end = std::min(chain_.digits[number + 1], limbs);
    return block(end - 1, first, end - first);
}

std::size_t Ring::divisor_number(int level, bool special) const {
    return size_q() + 2 * static_cast<std::size_t>(level) + (special ? 1 : 0);
}

Divisor Ring::divisor(int level, bool special) const {
    const std::size_t number = divisor_number(level, special);
    const std::size_t below = level == 0 ? 0 : chain_.limbs_at(level - 1);
    const std::size_t primes = level == 0 ? 0 : chain_.limbs_at(level) - below;
    const std::size_t specials = special ? size_p() : 0;
    return {block(number, below, primes + specials),
            inverses_.get() + (number - size_q()) * size_q(), primes, specials};
}

void Ring::check_transforms() const {
    const auto require = [](bool right) {
        if (!right) {
            throw Error("the transform of this build is not the expected one",
                        "a library was built for other GPUs or is another version, or the build "
                        "has flags that change arithmetic, such as -ffast-math",
                        "build it without such flags, and a library as docs/backend-phantom.md "
                        "says");
        }
    };
    // The transform of X lists the roots of unity in the order that `permuted` relies on.
    std::vector<Word> x(degree(), 0);
    x[1] = 1;
    Words limb = uploaded(memory_, x);
    forward(limb.get(), 1);
    const std::vector<Word> values = downloaded(limb.get(), degree());
    backward(limb.get(), limb.get(), 1);
    const Prime& q = host_primes_[0];
    const Word root = root_of(q, degree());
    const Word square = multiply(root, root, q);
    std::vector<Word> expected(degree());
    Word power = root;
    for (std::size_t at = 0; at < degree(); ++at) {
        expected[reverse_bits(static_cast<std::uint32_t>(at), log_degree_)] = power;
        power = multiply(power, square, q);
    }
    require(values == expected && downloaded(limb.get(), degree()) == x);

    // Modulo every prime: two values of a polynomial with the largest coefficients, and the way back.
    std::vector<Word> large(size_qp() * degree());
    for (std::size_t at = 0; at < large.size(); ++at) {
        const Word q = host_primes_[at / degree()].value;
        large[at] = at % 3 == 0 ? q - 1 : at * 0x9e3779b97f4a7c15ULL % q;
    }
    Words all = uploaded(memory_, large);
    forward(all.get(), size_qp());
    const std::vector<Word> transformed = downloaded(all.get(), large.size());
    backward(all.get(), all.get(), size_qp());
    require(downloaded(all.get(), large.size()) == large);
    for (std::size_t prime = 0; prime < size_qp(); ++prime) {
        const Prime& own = host_primes_[prime];
        const Word psi = root_of(own, degree());
        const std::size_t start = prime * degree();
        for (const std::size_t place : {std::size_t{1}, degree() - 2}) {
            const std::uint32_t reversed =
                reverse_bits(static_cast<std::uint32_t>(place), log_degree_);
            const Word point = ckks::power(psi, 2 * Word{reversed} + 1, own);
            Word value = 0;
            for (std::size_t at = degree(); at-- > 0;) {
                value = add(multiply(value, point, own), large[start + at], own);
            }
            require(transformed[start + place] == value);
        }
    }
}

}  // namespace atlasc::ckks
