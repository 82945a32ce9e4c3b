#include "ckks/ring/ring.hpp"

#include <algorithm>

#include "ckks/ring/transform_check.hpp"

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
    if (!chain_.is_part()) {
        check_transforms(*this, host_primes_);
    }
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
    std::vector<Word> digit_numbers(size_q(), 0);
    for (std::size_t digit = 0; digit + 1 < chain_.digits.size(); ++digit) {
        std::fill(&digit_numbers[chain_.digits[digit]], &digit_numbers[0] + chain_.digits[digit + 1],
                  digit);
    }
    digit_numbers_ = uploaded(memory_, digit_numbers);
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

}  // namespace atlasc::ckks
