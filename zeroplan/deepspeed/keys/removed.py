"""What DeepSpeed 0.19.8 no longer knows (runtime/config.py:81). A removed key is refused even if it is {} or false."""

from __future__ import annotations

REMOVED_KEYS: dict[str, str] = {
    "nebula": "delete it; see checkpoint.writer for faster checkpoints",
    "compression_training": "delete it; the compression library is gone",
    "amp": "use bf16, fp16 or torch_autocast",
    "quantize_training": "delete it; mixture of quantization is gone",
    "sparse_gradients": "delete it; embeddings made with sparse=True need no key",
    "eigenvalue": "delete it; it served mixture of quantization",
    "sparse_attention": "delete it; sparse attention is gone",
    "elasticity": "set train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps",
    "graph_harvesting": "delete it; hybrid_engine.enable_cuda_graph concerns generation only",
    "curriculum_learning": "use data_efficiency.data_sampling.curriculum_learning",
    "progressive_layer_drop": "delete it; layer dropping is gone",
    "zero_optimization.mics_shard_size": "use zero_optimization.zero_hpz_partition_size",
    "zero_optimization.mics_hierarchical_params_gather": "use zero_optimization.zero_hpz_partition_size",
    "zero_optimization.zeropp_loco_param": "delete it; zero_quantized_gradients works without error feedback",
}
"""Keys that raise DeepSpeedConfigError, and what to write instead."""

REFUSED_PARAMS: dict[str, str] = {"optimizer.params.max_grad_norm": "gradient_clipping"}
"""Parameters that the engine itself refuses (runtime/engine.py:2481), and the key to use instead."""

REMOVED_OPTIMIZERS: dict[str, str] = {
    "OneBitAdam": "AdamW",
    "ZeroOneAdam": "AdamW",
    "OneBitLamb": "Lamb",
}
"""Optimizer types that raise an AssertionError, and the type nearest to each."""

NOT_OPTIMIZERS: dict[str, str] = {
    "FusedAdam": "AdamW",
    "DeepSpeedCPUAdam": "AdamW",
    "CPUAdam": "AdamW",
    "FusedLamb": "Lamb",
    "FusedLion": "Lion",
    "DeepSpeedCPULion": "Lion",
    "DeepSpeedCPUAdagrad": "Adagrad",
    "AdamW8bit": "AdamW",
    "PagedAdamW": "AdamW",
}
"""Names people write as a type that never were one: DeepSpeed chooses the fused or CPU class by itself."""

IGNORED_KEYS: dict[str, str] = {
    "aio.thread_count": "aio.intra_op_parallelism",
    "lr_scheduler": "scheduler",
    "load_universal_checkpoint": "checkpoint.load_universal",
    "use_node_local_storage": "checkpoint.use_node_local_storage",
}
"""Spellings that are ignored without a word, and what is read instead."""
