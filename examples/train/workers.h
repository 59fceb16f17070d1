// SPDX-License-Identifier: Apache-2.0
// Threads that run the pieces of one job side by side. What a piece computes depends on its number
// alone, so that any number of threads gives the same bits.
#ifndef ACLGRAD_TRAIN_WORKERS_H_
#define ACLGRAD_TRAIN_WORKERS_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace aclgrad::train {

class Workers {
 public:
  explicit Workers(size_t threads) {
    for (size_t i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // piece(0) ... piece(count - 1), in any order; returns when all are done. Pieces must not throw.
  void run(size_t count, const std::function<void(size_t)>& piece) {
    if (count <= 1 || threads_.empty()) {
      for (size_t i = 0; i < count; ++i) piece(i);
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      piece_ = &piece;
      count_ = count;
      next_ = 0;
      busy_ = threads_.size();
      ++job_;
    }
    wake_.notify_all();
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

  // body(begin, end) over [0, count) in chunks of a fixed size.
  void run_chunks(size_t count, const std::function<void(size_t, size_t)>& body) {
    constexpr size_t kChunk = 32768;  // floats: half of a second-level cache holds a few of these
    run((count + kChunk - 1) / kChunk,
        [&](size_t i) { body(i * kChunk, std::min(count, (i + 1) * kChunk)); });
  }

  // body(row) for each row, several rows a piece.
  void run_rows(size_t rows, const std::function<void(size_t)>& body) {
    constexpr size_t kRows = 64;
    run((rows + kRows - 1) / kRows, [&](size_t i) {
      for (size_t row = i * kRows; row < std::min(rows, (i + 1) * kRows); ++row) body(row);
    });
  }

 private:
  void work() {
    for (size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) (*piece_)(i);
  }
  void serve() {
    size_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || job_ != seen; });
      if (stop_) return;
      seen = job_;
      lock.unlock();
      work();
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(size_t)>* piece_ = nullptr;
  size_t count_ = 0, busy_ = 0, job_ = 0;
  std::atomic<size_t> next_{0};
  bool stop_ = false;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_WORKERS_H_
