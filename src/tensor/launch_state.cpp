// SPDX-License-Identifier: Apache-2.0
#include "tensor/launch_state.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "tensor/objects.h"
#include "tensor/tensor.h"

namespace aclgrad {
namespace {

// States that wait to be used again. Those of the calls that a program makes by turns wait where
// their key leads, two in a place. Behind a lock as many as a queue of small operators may hold at
// once, up to 4 MiB: fresh memory for each would cost page faults.
constexpr size_t kPlaceBits = 5;
struct alignas(32) Place {
  struct Spare {
    std::atomic<uint64_t> hash{0};  // a hint: of the state that came here last
    std::atomic<LaunchState*> state{nullptr};
  };
  std::array<Spare, 2> spares;
};
constexpr size_t kQueuedStates = 512;
constinit std::array<Place, size_t{1} << kPlaceBits> places{};
constinit std::mutex queued_mutex;
constinit LaunchState* queued_states = nullptr;
constinit size_t queued_count = 0;

uint64_t hash_of(const char* op, const CallKey* key) {
  uint64_t hash = reinterpret_cast<uintptr_t>(op);
  for (size_t i = 0; key != nullptr && i < key->count; ++i) {
    hash = std::rotl(hash, 7) ^ key->words[i];
  }
  return hash * 0x9E3779B97F4A7C15u;  // Fibonacci hashing: the upper bits are good
}

Place& place_of(uint64_t hash) { return places[hash >> (64 - kPlaceBits)]; }

LaunchState* take_from(Place::Spare& spare) {
  if (spare.state.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return spare.state.exchange(nullptr, std::memory_order_acquire);
}

LaunchState* take_spare(uint64_t hash) {
  Place& place = place_of(hash);
  for (Place::Spare& spare : place.spares) {
    if (spare.hash.load(std::memory_order_relaxed) != hash) continue;
    if (LaunchState* state = take_from(spare)) return state;
  }
  // Another call's, without a lock: for programs that make new tensors for every call. The second
  // one, so that of three calls that meet here one keeps its own.
  if (LaunchState* state = take_from(place.spares[1])) return state;
  const std::lock_guard lock(queued_mutex);
  if (queued_states == nullptr) return nullptr;
  --queued_count;
  return std::exchange(queued_states, queued_states->next_spare);
}

bool keep_spare(LaunchState* state) {
  for (Place::Spare& spare : place_of(state->hash).spares) {
    LaunchState* empty = nullptr;
    if (spare.state.load(std::memory_order_relaxed) != nullptr) continue;
    spare.hash.store(state->hash, std::memory_order_relaxed);
    if (spare.state.compare_exchange_strong(empty, state, std::memory_order_release,
                                            std::memory_order_relaxed)) {
      return true;
    }
  }
  // What a call owns besides the state would be too much for so many.
  if (state->call.destroy != nullptr) state->clear(state->op);
  const std::lock_guard lock(queued_mutex);
  if (queued_count == kQueuedStates) return false;
  ++queued_count;
  state->next_spare = std::exchange(queued_states, state);
  return true;
}

bool array_lives(uint64_t handle) {
  const auto* array = reinterpret_cast<const void*>(static_cast<uintptr_t>(handle));
  return array == nullptr || int_arrays.alive(array) || bool_arrays.alive(array);
}

}  // namespace

LaunchState* take_launch_state(const char* op, const CallKey* key) {
  const uint64_t hash = hash_of(op, key);
  LaunchState* state = take_spare(hash);
  if (state == nullptr) state = new LaunchState;
  state->hash = hash;
  state->references.store(1, std::memory_order_relaxed);
  return state;
}

void LaunchState::give_back(uint32_t share) noexcept {
  if (references.load(std::memory_order_acquire) != share &&
      references.fetch_sub(share, std::memory_order_acq_rel) != share) {
    return;
  }
  if (!complete) end_call();
  if (!keep_spare(this)) delete this;
}

void LaunchState::clear(const char* new_op) noexcept {
  end_call();
  work.forget();
  op = new_op;
  complete = false;
  keeps = true;
  operand_count = 0;
  region_count = 0;
  workspace = 0;
  too_large = false;
  last_refusal = nullptr;
  verified = false;
  verified_copies = 0;
  problem.clear();
  bytes = 0;
  target = nullptr;
}

void LaunchState::remember(const CallKey& new_key) noexcept {
  // Every tensor among the arguments is an operand, whose description is compared.
  size_t operand = 0;
  for (uint32_t left = new_key.tensors; left != 0; left &= left - 1, ++operand) {
    const uint64_t handle = new_key.words[static_cast<size_t>(std::countr_zero(left))];
    if (operand == operand_count || handle::bits(operands[operand].handle) != handle) return;
  }
  key = new_key;
  complete = keeps && last_refusal == nullptr;
}

bool LaunchState::plans(const char* new_op, const CallKey& new_key) noexcept {
  if (!complete || op != new_op || key.count != new_key.count ||
      !std::equal(key.words.begin(), key.words.begin() + key.count, new_key.words.begin())) {
    return false;
  }
  for (uint32_t left = key.arrays; left != 0; left &= left - 1) {
    if (!array_lives(key.words[static_cast<size_t>(std::countr_zero(left))])) return false;
  }
  for (size_t i = 0; i < operand_count; ++i) {
    PlannedOperand& operand = operands[i];
    if (operand.handle == nullptr) continue;
    void* data = nullptr;
    bool same = false;
    const bool live = operand.read(
        [&](const Tensor& tensor) { same = tensor.has_version(operand.version, data); });
    if (!live || !same) return false;
    if (data == operand.data) continue;
    operand.data = data;
    verified = false;
    work.forget();
  }
  return true;
}

}  // namespace aclgrad
