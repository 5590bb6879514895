"""What should fuse: a claim by reading each class's source, not by running it.

Classes are named as in vLLM's registry, `module:class`, without the prefix that most modules share.
"""

from dataclasses import dataclass

from what_fuses.found import NORM, NORM_V, ROPE


@dataclass(frozen=True)
class Expectation:
    """fused: the kinds of fusion that its layers have. why_not: why layers that have none do not.
    not_built: words of the error with which an attempt to build a small one ends. language_model:
    the class whose row says what becomes of the language model, where this one is not built."""

    fused: frozenset[str] = frozenset()
    why_not: str = ""
    not_built: str = ""
    language_model: str = ""


# All attention layers fuse.
_WHOLE = {
    ROPE: """
        aria:AriaForConditionalGeneration
        audioflamingo3:AudioFlamingo3ForConditionalGeneration
        bailing_moe:BailingMoeForCausalLM
        chatglm:ChatGLMForCausalLM
        cohere_compass:CohereCompassForConditionalGeneration
        cohere_eagle:EagleCohereForCausalLM
        commandr:CohereForCausalLM
        cosmos3_edge:Cosmos3EdgeForConditionalGeneration
        deepseek_ocr2:DeepseekOCR2ForCausalLM deepseek_ocr:DeepseekOCRForCausalLM
        deepseek_v2:DeepseekForCausalLM
        deepseek_vl2:DeepseekVLV2ForCausalLM
        dots_ocr:DotsOCRForCausalLM
        eagle2_5_vl:Eagle2_5_VLForConditionalGeneration
        ernie45:Ernie4_5ForCausalLM
        ernie45_moe:Ernie4_5_MoeForCausalLM
        exaone:ExaoneForCausalLM
        falcon:FalconForCausalLM
        fireredasr2:FireRedASR2ForConditionalGeneration
        gemma2:Gemma2ForCausalLM
        gemma:GemmaForCausalLM
        glm4:Glm4ForCausalLM
        glm4_1v:Glm4vForConditionalGeneration
        glm4_1v:Glm4vMoeForConditionalGeneration
        glm4v:GLM4VForCausalLM
        glm_ocr:GlmOcrForConditionalGeneration
        glmasr:GlmAsrForConditionalGeneration
        gpt_oss:GptOssForCausalLM
        granite4_vision:Granite4VisionForConditionalGeneration
        granite:GraniteForCausalLM
        granite_speech:GraniteSpeechForConditionalGeneration
        granite_speech_plus:GraniteSpeechPlusForConditionalGeneration
        granitemoe:GraniteMoeForCausalLM
        granitemoehybrid:GraniteMoeHybridForCausalLM
        granitemoeshared:GraniteMoeSharedForCausalLM
        h2ovl:H2OVLChatModel
        hyperclovax:HyperCLOVAXForCausalLM
        hyperclovax_vision_v2:HCXVisionV2ForCausalLM
        idefics3:Idefics3ForConditionalGeneration
        interns1:InternS1ForConditionalGeneration
        internvl:InternVLChatModel
        jina_vl:JinaVLForSequenceClassification
        kanana_v:KananaVForConditionalGeneration
        kimi_audio:KimiAudioForConditionalGeneration
        lightonocr:LightOnOCRForConditionalGeneration
        llama:LlamaForCausalLM
        llama_eagle3:Eagle3LlamaForCausalLM
        llama_eagle:EagleLlamaForCausalLM
        llava:LlavaForConditionalGeneration
        llava_next:LlavaNextForConditionalGeneration
        llava_next_video:LlavaNextVideoForConditionalGeneration
        llava_onevision:LlavaOnevisionForConditionalGeneration
        midashenglm:MiDashengLMModel
        mimo:MiMoForCausalLM
        minicpm:MiniCPMForCausalLM minicpm_eagle:EagleMiniCPMForCausalLM
        minicpmo:MiniCPMO
        minicpmv:MiniCPMV
        mistral3:Mistral3ForConditionalGeneration
        mistral:MistralForCausalLM mistral_eagle:EagleMistralForCausalLM
        mixtral:MixtralForCausalLM
        nemotron:NemotronForCausalLM
        nemotron_nas:DeciLMForCausalLM
        nemotron_vl:LlamaNemotronVLChatModel
        nvlm_d:NVLM_D_Model
        opencua:OpenCUAForConditionalGeneration
        openpangu:PanguEmbeddedForCausalLM
        openvla:OpenVLAForActionPrediction
        orion:OrionForCausalLM
        ovis2_5:Ovis2_5 ovis:Ovis
        paddleocr_vl:PaddleOCRVLForConditionalGeneration
        paligemma:PaliGemmaForConditionalGeneration
        phi3:Phi3ForCausalLM
        phi4siglip:Phi4ForCausalLMV
        phimoe:PhiMoEForCausalLM
        pixtral:PixtralForConditionalGeneration
        qwen2:Qwen2ForCausalLM
        qwen2_5_omni_thinker:Qwen2_5OmniThinkerForConditionalGeneration
        qwen2_5_vl:Qwen2_5_VLForConditionalGeneration
        qwen2_audio:Qwen2AudioForConditionalGeneration
        qwen2_moe:Qwen2MoeForCausalLM
        qwen2_rm:Qwen2ForProcessRewardModel qwen2_rm:Qwen2ForRewardModel
        qwen2_vl:Qwen2VLForConditionalGeneration
        sarvam:SarvamMoEForCausalLM
        skyworkr1v:SkyworkR1VChatModel
        smolvlm:SmolVLMForConditionalGeneration
        solar:SolarForCausalLM
        stablelm:StablelmForCausalLM
        telechat2:TeleChat2ForCausalLM
        teleflm:TeleFLMForCausalLM
        ultravox:UltravoxModel
        voxtral:VoxtralForConditionalGeneration
        voxtral_realtime:VoxtralRealtimeGeneration
    """,
    NORM: """
        alice_ai:AliceAIForCausalLM
        alpamayo2_super:Alpamayo2SuperForConditionalGeneration
        apertus:ApertusForCausalLM
        bagel:BagelForConditionalGeneration
        bailing_moe:BailingMoeV2ForCausalLM
        bee:BeeForConditionalGeneration
        clef_flash:ClefFlashForJointSchema
        clef_omni:ClefOmniForJointSchema
        colqwen3:ColQwen3Model
        colqwen3_5:ColQwen3_5Model
        cosmos3:Cosmos3ForConditionalGeneration
        d3:D3ForSequenceClassification
        exaone4_5_mtp:Exaone4_5_MTP
        exaone_moe_mtp:ExaoneMoeMTP
        funasr:FunASRForConditionalGeneration
        funaudiochat:FunAudioChatForConditionalGeneration
        gemma3:Gemma3ForCausalLM
        gemma3_mm:Gemma3ForConditionalGeneration
        glm4_moe:Glm4MoeForCausalLM
        hy_v3:HYV3ForCausalLM
        interns2_mobius:InternS2MobiusForConditionalGeneration
        interns2_mobius:InternS2MobiusMTP
        interns2_preview:InternS2PreviewForConditionalGeneration
        isaac:IsaacForConditionalGeneration
        jina:JinaEmbeddingsV5Model jina:JinaForRanking
        keye:KeyeForConditionalGeneration
        keye_vl1_5:KeyeVL1_5ForConditionalGeneration
        laguna:LagunaForCausalLM laguna_dflash:DFlashLagunaForCausalLM
        lfm2:Lfm2ForCausalLM
        lfm2_moe:Lfm2MoeForCausalLM
        lfm2_vl:Lfm2VLForConditionalGeneration
        lilicorr:LiLiCorrForCausalLM
        llava_onevision2:LlavaOnevision2ForConditionalGeneration
        minicpm_ocr:MiniCPMOcrForConditionalGeneration
        minicpmv4_6:MiniCPMV4_6ForConditionalGeneration
        minicpmv4_7:MiniCPMV4_7ForConditionalGeneration
        molmo2:Molmo2ForConditionalGeneration
        moss_audio:MossAudioModel
        moss_transcribe_diarize:MossTranscribeDiarizeForConditionalGeneration
        plamo3:Plamo3ForCausalLM
        qianfan_ocr:QianfanOCRForConditionalGeneration
        qwen3:Qwen3ForCausalLM
        qwen3_5:Qwen3_5ForCausalLM qwen3_5:Qwen3_5MoeForCausalLM
        qwen3_5:Qwen3_5ForConditionalGeneration
        qwen3_5:Qwen3_5MoeForConditionalGeneration
        qwen3_5_mtp:Qwen3_5MTP
        qwen3_5_mtp:Qwen3_5MoeMTP
        qwen3_asr:Qwen3ASRForConditionalGeneration
        qwen3_asr_forced_aligner:Qwen3ASRForcedAlignerForTokenClassification
        qwen3_asr_realtime:Qwen3ASRRealtimeGeneration
        qwen3_dflash2:DFlash2Qwen3ForCausalLM qwen3_dflash:DFlashQwen3ForCausalLM
        qwen3_dspark:Qwen3DSparkForCausalLM
        qwen3_eagle3:Eagle3Qwen3ForCausalLM
        qwen3_moe:Qwen3MoeForCausalLM
        qwen3_next:Qwen3NextForCausalLM qwen3_next_mtp:Qwen3NextMTP
        qwen3_omni_moe_thinker:Qwen3OmniMoeThinkerForConditionalGeneration
        qwen3_vl:Qwen3VLForConditionalGeneration
        qwen3_vl_moe:Qwen3VLMoeForConditionalGeneration
        qwen3_xpress:Qwen3XPressForCausalLM
        rnj1:Rnj1ForCausalLM
        rvl:RForConditionalGeneration
        step3p5:Step3p5ForCausalLM
        step3p7:Step3p7ForConditionalGeneration
        step_vl:StepVLForConditionalGeneration
        vllm.models.qwen4_exp:Qwen4ExpForCausalLM
        vllm.models.qwen4_exp:Qwen4ExpForConditionalGeneration
    """,
    NORM_V: """
        diffusion_gemma:DiffusionGemmaForConditionalGeneration
    """,
}

_NOT_ROTATED = "layers without RoPE"
_SHARED = "layers that share another's KV cache"

# Some layers fuse, and some do not.
_PARTLY = {
    ("afmoe:AfmoeForCausalLM", NORM, _NOT_ROTATED),
    ("cohere2_moe:Cohere2MoeForCausalLM", ROPE, _NOT_ROTATED),
    ("cohere2_vision:Cohere2VisionForConditionalGeneration", ROPE, _NOT_ROTATED),
    ("exaone4:Exaone4ForCausalLM", NORM, _NOT_ROTATED),
    ("exaone4_5:Exaone4_5_ForConditionalGeneration", NORM, _NOT_ROTATED),
    ("exaone_moe:ExaoneMoeForCausalLM", NORM, _NOT_ROTATED),
    ("gemma3n:Gemma3nForCausalLM", NORM_V, _SHARED),
    ("gemma3n_mm:Gemma3nForConditionalGeneration", NORM_V, _SHARED),
    ("gemma4:Gemma4ForCausalLM", NORM_V, _SHARED),
    ("gemma4_mm:Gemma4ForConditionalGeneration", NORM_V, _SHARED),
    ("gemma4_unified:Gemma4UnifiedForConditionalGeneration", NORM_V, _SHARED),
    ("iquest_loopcoder:IQuestLoopCoderForCausalLM", ROPE, "the loops after the first"),
}

# No layer fuses.
_NONE = {
    "no rotation": """
        blip2:Blip2ForConditionalGeneration
        bloom:BloomForCausalLM
        clip:CLIPEmbeddingModel
        cohere_asr:CohereAsrForConditionalGeneration
        extract_hidden_states:ExtractHiddenStatesModel
        gpt2:GPT2ForSequenceClassification gpt2:GPT2LMHeadModel
        jamba:JambaForCausalLM jamba:JambaForSequenceClassification
        mamba2:Mamba2ForCausalLM
        mamba:MambaForCausalLM
        nano_nemotron_vl:NemotronH_Nano_VL_V2
        nemotron_h:NemotronHForCausalLM nemotron_h_mtp:NemotronHMTP
        nemotron_parse3_5:RadioMBartPrefixForCausalLM nemotron_parse3_5_mtp:ParseAuxMTPModel
        nemotron_parse:NemotronParseForConditionalGeneration
        opt:OPTForCausalLM
        siglip:SiglipEmbeddingModel
        step1:Step1ForCausalLM
        terratorch:Terratorch
        vllm.models.inkling:InklingForCausalLM vllm.models.inkling:InklingForConditionalGeneration
        vllm.models.inkling:InklingMTP
        whisper:WhisperForConditionalGeneration
        zamba2:Zamba2ForCausalLM
    """,
    "encoder-only layers write no cache": """
        bert:BertEmbeddingModel bert:BertForMaskedLM bert:BertForSequenceClassification
        bert:BertForTokenClassification bert:BertSpladeSparseEmbeddingModel
        bert_with_rope:GteNewForSequenceClassification bert_with_rope:GteNewModel
        bert_with_rope:NomicBertModel bert_with_rope:SnowflakeGteNewModel
        colbert:ColBERTJinaRobertaModel colbert:ColBERTLfm2Model colbert:ColBERTModel
        colbert:ColBERTModernBertModel
        colmodernvbert:ColModernVBertForRetrieval
        colultravbert:ColUltraVBertForRetrieval
        embedding_gemma2:EmbeddingGemma2Model
        gemma3:Gemma3Model
        lfm2:Lfm2BidirectionalModel
        llama:LlamaBidirectionalForSequenceClassification llama:LlamaBidirectionalModel
        modernbert:ModernBertForSequenceClassification modernbert:ModernBertForTokenClassification
        modernbert:ModernBertModel
        nemotron_vl:LlamaNemotronVLForEmbedding nemotron_vl:LlamaNemotronVLForSequenceClassification
        openai_privacy_filter:OpenAIPrivacyFilterForTokenClassification
        roberta:BgeM3EmbeddingModel roberta:RobertaEmbeddingModel
        roberta:RobertaForSequenceClassification roberta:RobertaForTokenClassification
        voyage:VoyageQwen3BidirectionalEmbedModel
    """,
    "vLLM takes it for an encoder, because it pools by the first token": """
        colpali:ColPaliModel
    """,
    "Q, K and V are parts by their number (chunk), not by their sizes": """
        gpt_j:GPTJForCausalLM
    """,
    "M-RoPE in an order of its own, in plain ops": """
        ernie45_vl:Ernie4_5_VLMoeForConditionalGeneration
        openpangu_vl:OpenPanguVLForConditionalGeneration
    """,
    "a Fourier embedding, in plain ops": """
        interns1_pro:InternS1ProForConditionalGeneration
    """,
    "LongRoPE is a module of its own, which calls no rotary op": """
        phi3v:Phi3VForCausalLM
        phi4mm:Phi4MMForCausalLM
    """,
    "MLA": """
        AXK1:AXK1ForCausalLM
        bailing_moe_linear:BailingMoeV25ForCausalLM bailing_moe_mtp:BailingMoeV25MTPModel
        bailing_moe_v3:BailingMoeV3ForCausalLM bailing_moe_v3_mtp:BailingMoeV3MTPModel
        bailing_moe_v3_vl:BailingMoeV3VLForConditionalGeneration
        deepseek_eagle3:Eagle3DeepseekV2ForCausalLM
        deepseek_eagle:EagleDeepseekV3ForCausalLM
        deepseek_mtp:DeepSeekMTP
        deepseek_v2:DeepseekV2ForCausalLM deepseek_v2:DeepseekV3ForCausalLM
        glm4_moe_lite:Glm4MoeLiteForCausalLM glm4_moe_lite_mtp:Glm4MoeLiteMTP
        kimi_k25:KimiK25ForConditionalGeneration
        kimi_vl:KimiVLForConditionalGeneration
        longcat_flash:LongcatFlashForCausalLM longcat_flash_mtp:LongCatFlashMTP
        longcat_flash_ngram:LongcatFlashNgramForCausalLM
        mistral_large_3:MistralLarge3ForCausalLM
        mistral_large_3_eagle:EagleMistralLarge3ForCausalLM
        openpangu:PanguUltraMoEForCausalLM openpangu_mtp:OpenPanguMTP
        sarvam:SarvamMLAForCausalLM
        vllm.models.deepseek_v32:DeepseekV32ForCausalLM vllm.models.deepseek_v32:DeepseekV32MTP
        vllm.models.deepseek_v32:GlmMoeDsaForCausalLM
        vllm.models.deepseek_v4:DSparkDeepseekV4ForCausalLM
        vllm.models.deepseek_v4:DeepSeekV4MTP vllm.models.deepseek_v4:DeepseekV4ForCausalLM
        vllm.models.deepseek_v4:DeepseekV4ForConditionalGeneration
        vllm.models.deepseek_v41:DSparkDeepseekV4ForCausalLM
        vllm.models.deepseek_v41:DeepseekV41ForCausalLM
        vllm.models.dots3_note:Dots3NoteForCausalLM vllm.models.dots3_note:Dots3NoteMTP
        vllm.models.glm5next:Glm5NextForCausalLM
        vllm.models.glm5next:Glm5NextForConditionalGeneration vllm.models.glm5next:Glm5NextMTP
        vllm.models.hy_v4:HYV4ForCausalLM vllm.models.hy_v4:HYV4MTP
        vllm.models.kimi_k3.nvidia.dspark_mla:K3DSparkForCausalLM
        vllm.models.kimi_k3:KimiK3ForConditionalGeneration vllm.models.kimi_k3:KimiK3MTP
        vllm.models.kimi_k3:KimiLinearForCausalLM
    """,
    "rotated is only a part that is split off each head (MLA written out)": """
        minicpm3:MiniCPM3ForCausalLM
    """,
    "the class has a kernel of its own for norm, RoPE and cache": """
        vllm.models.beam:BeamForCausalLM vllm.models.beam:DFlash2BeamForCausalLM
        vllm.models.flint:FlintForCausalLM
        vllm.models.minimax_m3:MiniMaxM3MTP
        vllm.models.minimax_m3:MiniMaxM3SparseForCausalLM
        vllm.models.minimax_m3:MiniMaxM3SparseForConditionalGeneration
        vllm.models.muse_spark.common.dspark:MuseSparkDSparkForCausalLM
        vllm.models.muse_spark:MuseSparkForConditionalGeneration
        vllm.models.step5:Step5ForCausalLM vllm.models.step5:Step5ForConditionalGeneration
        vllm.models.step5:Step5MTP
    """,
    "the gate lies before Q, K and V": """
        hrm_text:HrmTextForCausalLM
    """,
    "M-RoPE of Q with its gate, which no pattern meets; why is not known yet": """
        vllm.models.qwen4_exp:Qwen4ExpMTP
    """,
    "Q is multiplied or projected again between projection and RoPE": """
        moondream3:Moondream3ForCausalLM
        step3_text:Step3TextForCausalLM step3_vl:Step3VLForConditionalGeneration
    """,
    "Q, K and V are cut out of groups of heads": """
        internlm2:InternLM2ForCausalLM internlm2:InternLM2ForRewardModel
    """,
    "K is multiplied before RoPE": """
        falcon_h1:FalconH1ForCausalLM
    """,
    "the norm is over all heads together": """
        minimax_m2:MiniMaxM2ForCausalLM
        molmo:MolmoForCausalLM
        olmo_hybrid:OlmoHybridForCausalLM
        olmoe:OlmoeForCausalLM
    """,
    "the norm comes after RoPE": """
        dory:DoryForCausalLM
        llama4:Llama4ForCausalLM
        llama4_eagle:EagleLlama4ForCausalLM
        mllama4:Llama4ForConditionalGeneration
    """,
    "a norm of groups, of a class of its own": """
        k2_horizon:K2HorizonForCausalLM
    """,
    "a norm of Q and K without a weight": """
        domyn_edge:DomynEdgeForCausalLM
        muse_glimmer:MuseGlimmerForCausalLM
    """,
    "K alone is normed": """
        openpangu:PanguProMoEV2ForCausalLM
    """,
    "V's heads have another size than K's": """
        mimo_v2:MiMoV2FlashForCausalLM mimo_v2:MiMoV2ForCausalLM
        mimo_v2_mtp:MiMoV2MTP mimo_v2_mtp:MiMoV2OmniMTP
        mimo_v2_omni:MiMoV2OmniForCausalLM
    """,
    "K and V have projections of their own, or the target's cache": """
        gemma4_dspark:Gemma4DSparkForCausalLM
        gemma4_mtp:Gemma4MTP
    """,
    "vLLM does not compile this class": """
        dbrx:DbrxForCausalLM
        ernie_mtp:ErnieMTP
        glm4_moe_mtp:Glm4MoeMTP
        glm_ocr_mtp:GlmOcrMTP
        hy_v3_mtp:HYV3MTP
        mimo_mtp:MiMoMTP
        param2moe:Param2MoEForCausalLM
        step3p5_mtp:Step3p5MTP
        unlimited_ocr:UnlimitedOCRForCausalLM
    """,
    "models of the Transformers backend": """
        transformers:TransformersEmbeddingModel transformers:TransformersForCausalLM
        transformers:TransformersForMTP transformers:TransformersForSequenceClassification
        transformers:TransformersMoEEmbeddingModel transformers:TransformersMoEForCausalLM
        transformers:TransformersMoEForMTP transformers:TransformersMoEForSequenceClassification
        transformers:TransformersMultiModalEmbeddingModel
        transformers:TransformersMultiModalForCausalLM
        transformers:TransformersMultiModalForSequenceClassification
        transformers:TransformersMultiModalMoEForCausalLM
    """,
}

# Words of the error that an attempt to build one ends with. Without a configuration class is what
# neither Transformers nor vLLM has one for, and `instances.py` does not make up.
_NOT_BUILT = {
    "no configuration class": """
        bee:BeeForConditionalGeneration bert_with_rope:GteNewForSequenceClassification
        bert_with_rope:GteNewModel clef_flash:ClefFlashForJointSchema
        clef_omni:ClefOmniForJointSchema colbert:ColBERTJinaRobertaModel
        colqwen3_5:ColQwen3_5Model cosmos3:Cosmos3ForConditionalGeneration
        d3:D3ForSequenceClassification deepseek_eagle3:Eagle3DeepseekV2ForCausalLM
        deepseek_eagle:EagleDeepseekV3ForCausalLM dots_ocr:DotsOCRForCausalLM
        eagle2_5_vl:Eagle2_5_VLForConditionalGeneration
        extract_hidden_states:ExtractHiddenStatesModel
        fireredasr2:FireRedASR2ForConditionalGeneration funasr:FunASRForConditionalGeneration
        gemma4_dspark:Gemma4DSparkForCausalLM gemma4_mtp:Gemma4MTP glm4v:GLM4VForCausalLM
        h2ovl:H2OVLChatModel hyperclovax_vision_v2:HCXVisionV2ForCausalLM
        interns1_pro:InternS1ProForConditionalGeneration
        interns2_mobius:InternS2MobiusForConditionalGeneration interns2_mobius:InternS2MobiusMTP
        interns2_preview:InternS2PreviewForConditionalGeneration internvl:InternVLChatModel
        jina_vl:JinaVLForSequenceClassification keye:KeyeForConditionalGeneration
        keye_vl1_5:KeyeVL1_5ForConditionalGeneration
        kimi_audio:KimiAudioForConditionalGeneration laguna_dflash:DFlashLagunaForCausalLM
        lightonocr:LightOnOCRForConditionalGeneration lilicorr:LiLiCorrForCausalLM
        llama4_eagle:EagleLlama4ForCausalLM
        llava_onevision2:LlavaOnevision2ForConditionalGeneration mimo_v2_mtp:MiMoV2OmniMTP
        mimo_v2_omni:MiMoV2OmniForCausalLM minicpm_ocr:MiniCPMOcrForConditionalGeneration
        minicpmo:MiniCPMO minicpmv:MiniCPMV mistral_large_3_eagle:EagleMistralLarge3ForCausalLM
        molmo:MolmoForCausalLM moss_audio:MossAudioModel nemotron_nas:DeciLMForCausalLM
        nemotron_parse3_5:RadioMBartPrefixForCausalLM nemotron_parse3_5_mtp:ParseAuxMTPModel
        nemotron_parse:NemotronParseForConditionalGeneration
        nemotron_vl:LlamaNemotronVLChatModel nemotron_vl:LlamaNemotronVLForEmbedding
        nemotron_vl:LlamaNemotronVLForSequenceClassification nvlm_d:NVLM_D_Model
        opencua:OpenCUAForConditionalGeneration openpangu_vl:OpenPanguVLForConditionalGeneration
        ovis2_5:Ovis2_5 phi3v:Phi3VForCausalLM phi4mm:Phi4MMForCausalLM
        phi4siglip:Phi4ForCausalLMV pixtral:PixtralForConditionalGeneration
        qwen3_asr_forced_aligner:Qwen3ASRForcedAlignerForTokenClassification
        qwen3_asr_realtime:Qwen3ASRRealtimeGeneration qwen3_dflash2:DFlash2Qwen3ForCausalLM
        qwen3_dspark:Qwen3DSparkForCausalLM qwen3_xpress:Qwen3XPressForCausalLM
        rvl:RForConditionalGeneration skyworkr1v:SkyworkR1VChatModel
        step_vl:StepVLForConditionalGeneration transformers:TransformersEmbeddingModel
        transformers:TransformersForMTP transformers:TransformersForSequenceClassification
        transformers:TransformersMoEEmbeddingModel transformers:TransformersMoEForMTP
        transformers:TransformersMoEForSequenceClassification
        transformers:TransformersMultiModalEmbeddingModel
        transformers:TransformersMultiModalForSequenceClassification
        transformers:TransformersMultiModalMoEForCausalLM
        vllm.models.beam:DFlash2BeamForCausalLM
        vllm.models.deepseek_v41:DSparkDeepseekV4ForCausalLM
        vllm.models.deepseek_v4:DSparkDeepseekV4ForCausalLM
        vllm.models.deepseek_v4:DeepseekV4ForConditionalGeneration
        vllm.models.kimi_k3.nvidia.dspark_mla:K3DSparkForCausalLM vllm.models.kimi_k3:KimiK3MTP
        vllm.models.minimax_m3:MiniMaxM3MTP
        vllm.models.muse_spark.common.dspark:MuseSparkDSparkForCausalLM
        vllm.models.step5:Step5MTP voxtral_realtime:VoxtralRealtimeGeneration
    """,
    "vllm.vllm_flash_attn requires the CUDA flash attention extensions": """
        vllm.models.dots3_note:Dots3NoteForCausalLM vllm.models.dots3_note:Dots3NoteMTP
    """,
    "torch.cuda.Stream requires CUDA support": """
        vllm.models.deepseek_v4:DeepseekV4ForCausalLM
    """,
    "Tried to instantiate dummy base class Event": """
        vllm.models.deepseek_v4:DeepSeekV4MTP
    """,
    # What Dynamo cannot trace: a Triton kernel in Triton's interpreter, and an assertion that fails
    # (a draft without its target's embedding, zero experts without an output).
    "_patched_getfile": """
        alice_ai:AliceAIForCausalLM
    """,
    "Data-dependent assertion failed": """
        longcat_flash:LongcatFlashForCausalLM
        nemotron_h_mtp:NemotronHMTP
        sarvam:SarvamMLAForCausalLM
    """,
    "fused_minimax_m3_qknorm_rope_kv_insert": """
        vllm.models.minimax_m3:MiniMaxM3SparseForCausalLM
        vllm.models.minimax_m3:MiniMaxM3SparseForConditionalGeneration
    """,
    # Configuration classes that say nothing of the language model by default.
    "'DeepseekV41Config' object has no attribute 'hidden_size'": """
        vllm.models.deepseek_v41:DeepseekV41ForCausalLM
    """,
    "Muse Spark requires an HF text_config": """
        vllm.models.muse_spark:MuseSparkForConditionalGeneration
    """,
    "Sparse attention indexer ROCm path is only supported on AITER": """
        vllm.models.glm5next:Glm5NextForCausalLM
        vllm.models.glm5next:Glm5NextForConditionalGeneration vllm.models.glm5next:Glm5NextMTP
    """,
    # vLLM's guard finds a dictionary's `update` in the compiled code.
    "Assigning / modifying buffers of nn.Module": """
        granite4_vision:Granite4VisionForConditionalGeneration
    """,
    # vLLM reads the configuration class of the checkpoint, Transformers has another.
    "'Molmo2Config' object has no attribute 'vit_config'": """
        molmo2:Molmo2ForConditionalGeneration
    """,
    "'NemotronH_Omni_Reasoning_V3_Config' object has no attribute 'vit_hidden_size'": """
        nano_nemotron_vl:NemotronH_Nano_VL_V2
    """,
    "'Step3p7VisionConfig' object has no attribute 'width'": """
        step3p7:Step3p7ForConditionalGeneration
    """,
    "FlashAttention version not detected": """
        vllm.models.step5:Step5ForCausalLM vllm.models.step5:Step5ForConditionalGeneration
    """,
    # Its Triton kernels ask the GPU how large it is.
    "Torch not compiled with CUDA enabled": """
        vllm.models.inkling:InklingForCausalLM vllm.models.inkling:InklingForConditionalGeneration
    """,
    # vLLM's class forgets it.
    "object has no attribute 'use_sequence_parallel_moe'": """
        openpangu_mtp:OpenPanguMTP
    """,
    # The draft's layer is numbered after the target's, its configuration's list is its own.
    "list index out of range": """
        cohere_eagle:EagleCohereForCausalLM
    """,
    # Its embedding is the target's, of which nothing is built.
    "'NoneType' object has no attribute 'weight'": """
        vllm.models.inkling:InklingMTP
    """,
    # Files of a checkpoint beside its weights.
    "Can't load image processor": """
        colqwen3:ColQwen3Model
        transformers:TransformersMultiModalForCausalLM
    """,
    "'NoneType' object has no attribute 'vocab'": """
        deepseek_ocr2:DeepseekOCR2ForCausalLM deepseek_ocr:DeepseekOCRForCausalLM
        deepseek_vl2:DeepseekVLV2ForCausalLM
        unlimited_ocr:UnlimitedOCRForCausalLM
    """,
    "assert tokenizer is not None": """
        isaac:IsaacForConditionalGeneration
    """,
    "TimmWrapperModel requires the timm library": """
        gemma3n_mm:Gemma3nForConditionalGeneration
    """,
    "FlashAttention2 has been toggled on": """
        qwen2_5_omni_thinker:Qwen2_5OmniThinkerForConditionalGeneration
    """,
    "to buffer 'melscale_fbanks'": """
        midashenglm:MiDashengLMModel
    """,
    "Unsupported hasattr call": """
        bailing_moe_v3:BailingMoeV3ForCausalLM
        bailing_moe_v3_vl:BailingMoeV3VLForConditionalGeneration
    """,
    "No module named 'flashinfer'": """
        vllm.models.flint:FlintForCausalLM
    """,
    "No module named 'terratorch'": """
        terratorch:Terratorch
    """,
    "No module named 'timm.layers.pos_embed'": """
        kanana_v:KananaVForConditionalGeneration
    """,
}
# Language models of classes that are built neither whole nor without their towers, by what the
# class makes or the checkpoints name: its row says what becomes of it.
_LANGUAGE_MODELS = {
    "chatglm:ChatGLMForCausalLM": "glm4v:GLM4VForCausalLM",
    "granite:GraniteForCausalLM": "granite4_vision:Granite4VisionForConditionalGeneration",
    "hyperclovax:HyperCLOVAXForCausalLM": "hyperclovax_vision_v2:HCXVisionV2ForCausalLM",
    "commandr:CohereForCausalLM": "cohere_eagle:EagleCohereForCausalLM",
    "deepseek_v2:DeepseekForCausalLM": """
        deepseek_ocr2:DeepseekOCR2ForCausalLM deepseek_ocr:DeepseekOCRForCausalLM
        deepseek_vl2:DeepseekVLV2ForCausalLM
    """,
    "gemma3n:Gemma3nForCausalLM": "gemma3n_mm:Gemma3nForConditionalGeneration",
    "vllm.models.inkling:InklingForCausalLM": "vllm.models.inkling:InklingMTP",
    "llama:LlamaForCausalLM": "kanana_v:KananaVForConditionalGeneration",
    "mistral:MistralForCausalLM": "pixtral:PixtralForConditionalGeneration",
    "nemotron_h:NemotronHForCausalLM": """
        nano_nemotron_vl:NemotronH_Nano_VL_V2 nemotron_h_mtp:NemotronHMTP
    """,
    "phi3:Phi3ForCausalLM": "phi4siglip:Phi4ForCausalLMV",
    "qwen2:Qwen2ForCausalLM": """
        dots_ocr:DotsOCRForCausalLM
        fireredasr2:FireRedASR2ForConditionalGeneration
        kimi_audio:KimiAudioForConditionalGeneration
        midashenglm:MiDashengLMModel
    """,
    "qwen2_5_vl:Qwen2_5_VLForConditionalGeneration": """
        qwen2_5_omni_thinker:Qwen2_5OmniThinkerForConditionalGeneration
    """,
    "qwen3_vl:Qwen3VLForConditionalGeneration": """
        colqwen3:ColQwen3Model isaac:IsaacForConditionalGeneration
    """,
    "step3p5:Step3p5ForCausalLM": "step3p7:Step3p7ForConditionalGeneration",
    "qwen3:Qwen3ForCausalLM": """
        bee:BeeForConditionalGeneration
        funasr:FunASRForConditionalGeneration
        llava_onevision2:LlavaOnevision2ForConditionalGeneration
        moss_audio:MossAudioModel
        rvl:RForConditionalGeneration
    """,
}


def _expectations() -> dict[str, Expectation]:
    found: dict[str, tuple[frozenset[str], str]] = {}
    claims = [
        *((names, frozenset({kind}), "") for kind, names in _WHOLE.items()),
        *((name, frozenset({kind}), why) for name, kind, why in _PARTLY),
        *((names, frozenset(), why) for why, names in _NONE.items()),
    ]
    for names, fused, why in claims:
        for name in names.split():
            if name in found:
                raise ValueError(f"{name} has two expectations")
            found[name] = fused, why
    not_built, language_models = _by_name(_NOT_BUILT), _by_name(_LANGUAGE_MODELS)
    return {
        name: Expectation(fused, why, not_built.get(name, ""), language_models.get(name, ""))
        for name, (fused, why) in found.items()
    }


def _by_name(groups: dict[str, str]) -> dict[str, str]:
    """By each of the names in a group: the group's key."""
    return {name: key for key, names in groups.items() for name in names.split()}


EXPECTED = _expectations()


def expectation(name: str) -> Expectation | None:
    """What a class, as `module:class`, should become; None if nothing is claimed."""
    return EXPECTED.get(name)
